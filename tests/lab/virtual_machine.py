"""A test host with a kernel of its own: a virtual machine under software emulation, for what a container cannot have.

It is made of the tree that the containers' image is made of, has their user, keys and settings, and loads kernel
modules and restarts as a rented machine does. It answers ssh about half a minute after its start.
"""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.lab import files, image
from tests.lab.machine import STORE, LabError, apt_settings, eventually, locked, run

PACKAGES = [*image.BASE, "linux-image-cloud-amd64", "initramfs-tools", "kmod", "udev"]
SCRIPT = Path(__file__).with_suffix(".sh")
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs", "mmdebstrap": "mmdebstrap"}
"""Command to the Debian/Ubuntu package that has it."""
OUTSIDE = "10.0.2.2"
"""Address by which the virtual machine reaches what listens on this machine's 127.0.0.1."""
DISK_GIB = 3
"""Size of its disk; what is not used takes no space."""
LOGIN_TIMEOUT = 480.0
"""Seconds from a start to the first login; 20 to 30 were seen on an idle machine of two cores."""


@dataclass(frozen=True)
class VirtualMachine:
    """A virtual machine that runs."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def folder(self) -> Path:
        """Where its files lie: keys, inventory, console."""
        return files.directory(self.name)

    @property
    def inventory(self) -> Path:
        """The inventory file, for `ansible-playbook -i`."""
        return self.folder / "inventory.yml"

    @property
    def console(self) -> str:
        """What it has said on its console."""
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def run(self, script: str, *, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root; the exit status is the caller's to judge. Its words stand in no log there."""
        return self._ssh("sudo bash -s", stdin=script, timeout=timeout)

    def sh(self, script: str, *, timeout: float = 180) -> str:
        """Run a shell script as root that must succeed, and return what it prints.

        Raises:
            LabError: it failed.
        """
        done = self.run(script, timeout=timeout)
        if done.returncode:
            raise LabError(f"{self.name}: {script}\nfailed ({done.returncode}): {done.stdout}{done.stderr}")
        return done.stdout

    def restart(self) -> float:
        """Restart it from inside; return the seconds until its user could log in again."""
        started = time.monotonic()
        before = self.sh("cat /proc/sys/kernel/random/boot_id")
        self.run("systemctl --no-block reboot")

        def is_back() -> bool:
            done = self._ssh("cat /proc/sys/kernel/random/boot_id", shared=False)
            return done.returncode == 0 and done.stdout != before

        files.end_ssh_masters(self.name)
        self._wait("Login after a restart", is_back)
        return time.monotonic() - started

    def wait_for_login(self) -> None:
        """Return when its user can log in."""
        self._wait("Login", lambda: self._ssh("true", shared=False).returncode == 0)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            eventually(f"{what} at {self.name}", condition, timeout=LOGIN_TIMEOUT, pause=0.5)
        except LabError as error:
            raise LabError(f"{error} Its console ends with:\n{self.console[-3000:]}") from error

    def _ssh(
        self, command: str, *, stdin: str = "", timeout: float = 60, shared: bool = True
    ) -> subprocess.CompletedProcess[str]:
        # a machine that starts is asked again and again, one that is up may be slow
        options = ["-o", f"ConnectTimeout={60 if shared else 10}", "-o", "BatchMode=yes", "-p", str(self.port)]
        if shared:  # a login of its own costs it seconds: keys, PAM, the user's own systemd
            path = f"{files.ssh_masters(self.name)}/%r@%h"  # Ansible's too
            options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", f"ControlPath={path}"]
        words = ["ssh", *files.ssh_options(self.name), *options, f"{files.USER}@127.0.0.1", command]
        try:
            return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 255, "", f"no answer within {timeout:.0f} s")


@contextmanager
def virtual_machine(name: str, suite: str | None = None) -> Iterator[VirtualMachine]:
    """Start a virtual machine from a clean disk, and take it down afterwards.

    Args:
        name: names its directory below build, and its host in the inventory.
        suite: release, as for `Lab.up`.

    Raises:
        LabError: with what is missing and what to do.
    """
    for command, package in TOOLS.items():
        if shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            raise LabError(f"{command} is missing on this machine: apt-get install {package}")
    with locked():
        disk = ensure(suite or image.own_suite())
    folder = files.directory(name)
    folder.mkdir(parents=True, exist_ok=True)
    files.make_key(folder / "id_ed25519", comment=f"{files.USER}@{name}")
    host_key = files.host_key(name, name)
    files.make_key(host_key, comment=name)
    seed = folder / "seed.tar"
    files.write_private(seed, files.make_seed(name, host_key, folder / "id_ed25519.pub", ()))
    port = free_port()
    public = host_key.with_suffix(".pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(public)}\n")
    files.ssh_masters(name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "inventory.yml").write_text(_inventory(name, port))
    with (folder / "qemu.log").open("w") as log:
        # with its parent, if that is killed, it goes too
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *_qemu(disk, seed, folder / "console.log", port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    started = VirtualMachine(name, port, process)
    try:
        started.wait_for_login()
        yield started
    finally:
        files.end_ssh_masters(name)
        shutil.rmtree(files.ssh_masters(name), ignore_errors=True)
        process.terminate()
        process.wait(60)


def free_port(address: str = "127.0.0.1") -> int:
    """A free TCP port outside the range from which connections take theirs: it stays free while nothing listens."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return port
    raise OSError(f"no port is free at {address}")


def ensure(suite: str) -> Path:
    """Return the directory of a release's disk, kernel and initrd, after building them where they are not there yet.

    To be called under the lab's lock.
    """
    recipe = "\n".join([suite, *PACKAGES, image.CUSTOMISE.read_text(), SCRIPT.read_text(), str(DISK_GIB)])
    place = STORE / "machines" / f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if place.exists():
        return place
    print(f"Building the disk of a {suite} virtual machine (once, about two minutes).", flush=True)
    scratch = STORE / "build-machine"
    clear: list[str | Path] = ["rm", "--recursive", "--force", "--one-file-system", scratch]
    run(clear)  # left by a build that was killed
    (scratch / "made").mkdir(parents=True)
    tree = scratch / "tree"
    mirror = [os.environ["MUSTER_LAB_MIRROR"]] if "MUSTER_LAB_MIRROR" in os.environ else []
    shape = ["--variant=minbase", f"--include={','.join(PACKAGES)}", "--format=directory"]
    hooks = [f"--customize-hook={image.CUSTOMISE}", f"--customize-hook={SCRIPT}"]
    options = [f"--aptopt={line}" for line in apt_settings()]
    run(["env", f"TMPDIR={scratch}", "mmdebstrap", *shape, *hooks, *options, suite, tree, *mirror], timeout=1200)
    for part in ("kernel", "initrd"):
        shutil.move(scratch / part, scratch / "made" / part)
    disk = scratch / "made" / "disk"
    run(["mkfs.ext4", "-q", "-d", tree, disk, f"{DISK_GIB}G"], timeout=600)
    for old in place.parent.glob(f"{suite}-*"):
        shutil.rmtree(old)
    place.parent.mkdir(exist_ok=True)
    (scratch / "made").rename(place)
    run(clear, timeout=300)
    return place


def _inventory(name: str, port: int) -> str:
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "node_address": "10.0.2.15",
        "node_slots": 1,
        "ansible_user": files.USER,
        "ansible_ssh_private_key_file": str(files.directory(name) / "id_ed25519"),
        "ansible_ssh_common_args": shlex.join(files.ssh_options(name)[2:]),
        "ansible_control_path": f"{files.ssh_masters(name)}/%%r@%%h",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_timeout": 120,  # under emulation a login takes seconds, on a busy machine many
    }
    head = "---\n# A virtual machine, written by tests/lab.\n"
    return head + yaml.safe_dump({"training": {"hosts": {name: host}}}, sort_keys=False, width=1000)


def _qemu(place: Path, seed: Path, console: Path, port: int) -> list[str]:
    """Words of the command; a /dev/kvm in which guests hang is not rare on rented machines, so it is not used."""
    drive = "format=raw,if=virtio"
    return [
        # with QEMU's own buffer for what it has translated, of 1024 MiB, a restart took a quarter more of the CPU
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-smp", "2", "-m", "1024"),
        *("-display", "none", "-monitor", "none", "-serial", f"file:{console}"),
        *("-kernel", str(place / "kernel"), "-initrd", str(place / "initrd")),
        # kept from each other's memory, kernel and programs have all of an emulated machine's addresses looked up anew
        *("-append", "console=ttyS0 root=/dev/vda rw net.ifnames=0 quiet mitigations=off"),
        # what it writes goes into a temporary file: the disk stays clean for the next
        *("-drive", f"file={place}/disk,{drive},snapshot=on,cache=unsafe"),
        *("-drive", f"file={seed},{drive},readonly=on"),
        *("-device", "virtio-rng-pci"),
        *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net"),
    ]
