#!/bin/sh
# Makes a rented machine's image of the tree in $1: mmdebstrap runs this as its last step.
set -eu
root=$1

chroot "$root" useradd --create-home --shell /bin/bash --groups sudo muster
echo 'muster ALL=(ALL) NOPASSWD:ALL' > "$root/etc/sudoers.d/90-muster"
chmod 0440 "$root/etc/sudoers.d/90-muster"
echo 'LANG=C.UTF-8' > "$root/etc/default/locale"

# As minimal images of clouds have it: packages come without manual pages, and their descriptions without translations.
echo 'path-exclude=/usr/share/man/*' > "$root/etc/dpkg/dpkg.cfg.d/90-minimal"
echo 'Acquire::Languages "none";' > "$root/etc/apt/apt.conf.d/90-minimal"

# The first choice of OpenSSH 9.0 and later, sntrup761x25519, takes 50 ms of a core more for each connection, of which a
# scenario makes hundreds.
echo 'KexAlgorithms curve25519-sha256' > "$root/etc/ssh/sshd_config.d/90-lab.conf"

# Each node has its own.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname" "$root/etc/apt/apt.conf.d/99mmdebstrap"
: > "$root/etc/machine-id"

# A container with all rights reaches the machine's kernel: these would set it up, or take its console.
# The apt timers would hold apt's lock at a moment of their own choice.
for unit in systemd-sysctl.service systemd-binfmt.service systemd-modules-load.service systemd-journald-audit.socket \
            console-getty.service getty.target apt-daily.timer apt-daily-upgrade.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

# What differs from node to node comes in one archive, unpacked at the first boot.
mkdir -p "$root/var/lib/lab"
cat > "$root/etc/systemd/system/lab-seed.service" << 'EOF'
[Unit]
Description=Settings of this test host
ConditionPathExists=!/var/lib/lab/seeded
Before=ssh.service

[Service]
Type=oneshot
ExecStart=/bin/tar -C / --extract --numeric-owner --preserve-permissions --keep-directory-symlink --file /var/lib/lab/seed.tar
ExecStart=/bin/touch /var/lib/lab/seeded

[Install]
WantedBy=multi-user.target
RequiredBy=ssh.service
EOF
chroot "$root" systemctl enable lab-seed.service
