#!/bin/sh
# Makes of the tree in $1 what starts on a virtual machine: mmdebstrap runs this after customise.sh.
set -eu
root=$1

# Its seed is a disk of its own.
ln -s /dev/vdb "$root/var/lib/lab/seed.tar"
sed -i 's/^Before=ssh.service$/Before=ssh.service\nAfter=dev-vdb.device\nRequires=dev-vdb.device/' \
    "$root/etc/systemd/system/lab-seed.service"
# customise.sh masks it for containers, which would load modules into the machine's kernel; here the kernel is its own.
rm "$root/etc/systemd/system/systemd-modules-load.service" "$root/etc/systemd/system/systemd-sysctl.service"

# The addresses that QEMU's user network has.
cat > "$root/etc/systemd/network/eth0.network" << 'END'
[Match]
Name=eth0

[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
END
chroot "$root" systemctl enable systemd-networkd.service systemd-networkd-wait-online.service
echo 'nameserver 10.0.2.3' > "$root/etc/resolv.conf"

# An initial file system with what this machine's disk needs and no more: all drivers would cost seconds at each start.
echo 'MODULES=list' > "$root/etc/initramfs-tools/conf.d/lab"
printf 'virtio_pci\nvirtio_blk\next4\n' >> "$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u
cp "$root"/boot/vmlinuz-* "$root/../kernel"
cp "$root"/boot/initrd.img-* "$root/../initrd"

# An archive of its own with what roles install there: reading the lists of all of Debian takes most of a minute under emulation.
archive=$root/srv/packages
mkdir "$archive"
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get install --download-only --yes --no-install-recommends cifs-utils
mv "$root"/var/cache/apt/archives/*.deb "$archive"
for package in "$archive"/*.deb; do
    dpkg-deb --field "$package"
    echo "Filename: ./$(basename "$package")"
    echo "Size: $(stat --format=%s "$package")"
    echo "SHA256: $(sha256sum "$package" | cut -d ' ' -f 1)"
    echo
done | gzip > "$archive/Packages.gz" # what is not packed, apt would only link to
echo 'deb [trusted=yes] file:/srv/packages ./' > "$root/etc/apt/sources.list"
