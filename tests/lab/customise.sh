#!/bin/sh
# Makes a rented machine's image of the tree in $1: mmdebstrap runs this as its last step.
set -eu
root=$1

chroot "$root" useradd --create-home --shell /bin/bash --groups sudo muster
echo 'muster ALL=(ALL) NOPASSWD:ALL' > "$root/etc/sudoers.d/90-muster"
chmod 0440 "$root/etc/sudoers.d/90-muster"
echo 'LANG=C.UTF-8' > "$root/etc/default/locale"

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
