#!/bin/sh
# Makes of the tree in $1 what starts on a virtual machine: mmdebstrap runs this after customize.sh.
set -eu
root=$1

# Its seed is a disk of its own.
ln -s /dev/ubdb "$root/var/lib/lab/seed.tar"
sed -i 's/^Before=ssh.service$/Before=ssh.service\nAfter=dev-ubdb.device\nRequires=dev-ubdb.device/' \
    "$root/etc/systemd/system/lab-seed.service"
# customize.sh masks it for containers, which would load modules into the machine's kernel; here the kernel is its own.
rm "$root/etc/systemd/system/systemd-modules-load.service" "$root/etc/systemd/system/systemd-sysctl.service"

# The address comes with the kernel's words, and there is no name server.
chroot "$root" systemctl enable systemd-networkd.service systemd-networkd-wait-online.service systemd-network-generator.service
: > "$root/etc/resolv.conf"

# Linux in user mode is a program of the machine outside; its modules belong inside.
mv "$root"/usr/bin/linux.uml "$root/../kernel"
mkdir -p "$root/usr/lib/modules"
mv "$root"/usr/lib/uml/modules/* "$root/usr/lib/modules/"

# An archive of its own with what roles install there, for it reaches no other.
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
