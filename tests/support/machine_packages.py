"""Packages from this machine's archives for a virtual machine, which can reach only its own archive."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.lab import files
from tests.lab.machine import run
from tests.lab.virtual_machine import VirtualMachine

INDEX = """
cd /srv/packages
for package in *.deb; do
    dpkg-deb --field "$package"
    printf 'Filename: ./%s\\nSize: %s\\n' "$package" "$(stat --format=%s "$package")"
    printf 'SHA256: %s\\n\\n' "$(sha256sum "$package" | cut -d ' ' -f 1)"
done | gzip > Packages.gz
apt-get -qq update
"""


def add_packages(machine: VirtualMachine, names: Sequence[str], directory: Path) -> None:
    """Add packages, and those that they need there, to the archive of a virtual machine of this machine's release."""
    status = directory / "status"
    status.write_text(machine.sh("cat /var/lib/dpkg/status"))
    archives = directory / "archives"
    (archives / "partial").mkdir(parents=True)
    settings = (f"Dir::State::status={status}", f"Dir::Cache::archives={archives}", "Debug::NoLocking=true")
    options = [word for setting in settings for word in ("--option", setting)]
    install = ["install", "--yes", "--download-only", "--no-install-recommends", *names]
    run(["apt-get", "-qq", *options, *install], timeout=600)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for package in archives.glob("*.deb"):
            archive.add(package, package.name)
    unpack = f"{files.USER}@{machine.address}", "sudo tar --extract --directory=/srv/packages --file=-"
    ssh = ["ssh", *files.ssh_options(machine.name), *unpack]
    subprocess.run(ssh, input=packed.getvalue(), check=True, timeout=600)
    machine.sh(INDEX, timeout=600)
