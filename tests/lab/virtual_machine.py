"""A test host with its own kernel, for tests that are impossible in containers: User Mode Linux, an ordinary process on
this machine.

It is built from the same tree as the containers' image, has the same user, keys and settings, and loads kernel modules
and restarts like a rented machine. It does not need KVM, and runs programs about five times slower than this machine;
on an emulated processor they took twenty times as long.
"""

from __future__ import annotations

import hashlib
import ipaddress
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

PACKAGES = [*image.BASE, "user-mode-linux", "kmod", "udev"]
SCRIPT = Path(__file__).with_suffix(".sh")
RESTARTED = Path(__file__).with_name("linux_in_user_mode.sh")
XSTATE = Path(__file__).with_name("xstate.c")
TOOLS = {"ip": "iproute2", "mkfs.ext4": "e2fsprogs", "mmdebstrap": "mmdebstrap", "unshare": "util-linux"}
"""For each command, its Debian/Ubuntu package."""
NETWORK = ipaddress.IPv4Network("198.18.0.0/16")
"""The range for the networks between this machine and each virtual machine: reserved for benchmarks (RFC 2544)."""
DISK_GIB = 3
"""Size of its disk, a sparse file."""
LOGIN_TIMEOUT = 480.0
"""Seconds from a start to the first login; under 10 were observed on an idle machine with two cores."""


@dataclass(frozen=True)
class VirtualMachine:
    """A running virtual machine."""

    name: str
    address: str
    machine_address: str
    """This machine's address in its network, on which services for the virtual machine must listen."""

    @property
    def folder(self) -> Path:
        """The directory of its files: keys, inventory, console."""
        return files.directory(self.name)

    @property
    def inventory(self) -> Path:
        """The inventory file, for `ansible-playbook -i`."""
        return self.folder / "inventory.yml"

    @property
    def console(self) -> str:
        """Its console output."""
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def run(self, script: str, *, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root; the caller must check the exit status. The script is not logged on the
        machine.
        """
        return self._ssh("sudo bash -s", stdin=script, timeout=timeout)

    def sh(self, script: str, *, timeout: float = 180) -> str:
        """Run a shell script as root, which must succeed, and return its output.

        Raises:
            LabError: it failed.
        """
        completed = self.run(script, timeout=timeout)
        if completed.returncode:
            raise LabError(
                f"{self.name}: {script}\nfailed ({completed.returncode}): {completed.stdout}{completed.stderr}"
            )
        return completed.stdout

    def restart(self) -> float:
        """Reboot it from inside; return the seconds until its user could log in again."""
        started = time.monotonic()
        before = self.sh("cat /proc/sys/kernel/random/boot_id")
        self.run("systemctl --no-block reboot")

        def is_back() -> bool:
            completed = self._ssh("cat /proc/sys/kernel/random/boot_id", shared=False)
            return completed.returncode == 0 and completed.stdout != before

        files.end_ssh_masters(self.name)
        self._wait("Login after a restart", is_back)
        return time.monotonic() - started

    def wait_for_login(self) -> None:
        """Wait until its user can log in."""
        self._wait("Login", lambda: self._ssh("true", shared=False).returncode == 0)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            eventually(f"{what} at {self.name}", condition, timeout=LOGIN_TIMEOUT, pause=0.5)
        except LabError as error:
            raise LabError(f"{error} Its console ends with:\n{self.console[-3000:]}") from error

    def _ssh(
        self, command: str, *, stdin: str = "", timeout: float = 60, shared: bool = True
    ) -> subprocess.CompletedProcess[str]:
        # short while booting, so that it is retried often; long once the node is up, since it may be slow
        options = ["-o", f"ConnectTimeout={60 if shared else 10}", "-o", "BatchMode=yes"]
        if shared:  # each new login takes seconds: keys, PAM, the user's systemd
            path = f"{files.ssh_masters(self.name)}/%r@%h"  # also used by Ansible
            options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", f"ControlPath={path}"]
        arguments = ["ssh", *files.ssh_options(self.name), *options, f"{files.USER}@{self.address}", command]
        try:
            return subprocess.run(arguments, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(arguments, 255, "", f"no reply within {timeout:.0f} s")


@contextmanager
def virtual_machine(name: str, suite: str | None = None) -> Iterator[VirtualMachine]:
    """Start a virtual machine from a clean disk, and shut it down afterwards.

    Args:
        name: of its directory below build, and of its host in the inventory.
        suite: release, as for `Lab.up`.

    Raises:
        LabError: if something is missing, with a remedy.
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
    public = host_key.with_suffix(".pub").read_text().split()[:2]
    files.ssh_masters(name).mkdir(mode=0o700, parents=True, exist_ok=True)
    with _network(files.identity(name)) as (link, machine_address, address):
        (folder / "known_hosts").write_text(f"{address} {' '.join(public)}\n")
        (folder / "inventory.yml").write_text(_inventory(name, address))
        network = f"{address}::{machine_address}:255.255.255.252:{name}:vec0:off"
        with (folder / "console.log").open("w") as console:
            process = subprocess.Popen(
                _command_line(disk, seed, folder / "changes", link, network, _library(folder)),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        try:
            started = VirtualMachine(name, address, machine_address)
            started.wait_for_login()
            yield started
        finally:
            files.end_ssh_masters(name)
            shutil.rmtree(files.ssh_masters(name), ignore_errors=True)
            process.kill()
            process.wait(60)
            (folder / "changes").unlink(missing_ok=True)


@contextmanager
def _network(identity: str) -> Iterator[tuple[str, str, str]]:
    """Yield a network between this machine and a virtual machine: the link's name, and both addresses."""
    link = f"vm-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"
    with locked():
        run(["ip", "link", "delete", link], check=False)  # left behind by a killed run
        routes = run(["ip", "-4", "route", "show", "table", "all"])
        network = random.choice([item for item in NETWORK.subnets(new_prefix=30) if str(item) not in routes])
        run(["ip", "tuntap", "add", link, "mode", "tap"])
        run(["ip", "address", "add", f"{network[1]}/30", "dev", link])
        run(["ip", "link", "set", link, "up"])
    try:
        yield link, str(network[1]), str(network[2])
    finally:
        run(["ip", "link", "delete", link], check=False)


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free TCP port outside the ephemeral range, so that no outgoing connection takes it."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return port
    raise OSError(f"no port is free at {address}")


def ensure(suite: str) -> Path:
    """Return the directory of a release's disk, kernel and initrd, after building missing ones.

    Call this while holding the lab's lock.
    """
    recipe = "\n".join([suite, *PACKAGES, image.CUSTOMISE.read_text(), SCRIPT.read_text(), str(DISK_GIB)])
    directory = STORE / "machines" / f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if directory.exists():
        return directory
    print(f"Building the disk of a {suite} virtual machine (once, about a minute).", flush=True)
    scratch = STORE / "build-machine"
    clear: list[str | Path] = ["rm", "--recursive", "--force", "--one-file-system", scratch]
    run(clear)  # left by a killed build
    (scratch / "made").mkdir(parents=True)
    tree = scratch / "tree"
    mirror = [os.environ["MUSTER_LAB_MIRROR"]] if "MUSTER_LAB_MIRROR" in os.environ else []
    shape = ["--variant=minbase", f"--include={','.join(PACKAGES)}", "--format=directory"]
    hooks = [f"--customize-hook={image.CUSTOMISE}", f"--customize-hook={SCRIPT}"]
    options = [f"--aptopt={line}" for line in apt_settings()]
    run(["env", f"TMPDIR={scratch}", "mmdebstrap", *shape, *hooks, *options, suite, tree, *mirror], timeout=1200)
    shutil.move(scratch / "kernel", scratch / "made" / "kernel")
    disk = scratch / "made" / "disk"
    run(["mkfs.ext4", "-q", "-d", tree, disk, f"{DISK_GIB}G"], timeout=600)
    for old in directory.parent.glob(f"{suite}-*"):
        shutil.rmtree(old)
    directory.parent.mkdir(exist_ok=True)
    (scratch / "made").rename(directory)
    run(clear, timeout=300)
    return directory


def _inventory(name: str, address: str) -> str:
    host = {
        "ansible_host": address,
        "node_address": address,
        "node_slots": 1,
        "ansible_user": files.USER,
        "ansible_ssh_private_key_file": str(files.directory(name) / "id_ed25519"),
        "ansible_ssh_common_args": shlex.join(files.ssh_options(name)[2:]),
        "ansible_control_path": f"{files.ssh_masters(name)}/%%r@%%h",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_timeout": 120,  # a login takes seconds on a busy machine
    }
    head = "---\n# A virtual machine, written by tests/lab.\n"
    return head + yaml.safe_dump({"training": {"hosts": {name: host}}}, sort_keys=False, width=1000)


def has_tiles() -> bool:
    """Return whether the processor has AMX, whose state User Mode Linux does not support."""
    return " amx_tile " in Path("/proc/cpuinfo").read_text().partition("\n\n")[0].replace("\n", " ")


def _library(folder: Path) -> Path | None:
    """Return the compiled library that User Mode Linux needs on a processor with AMX; None on others."""
    if not has_tiles():
        return None
    library = folder / "xstate.so"
    try:
        run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, XSTATE, "-ldl"])
    except FileNotFoundError:
        raise LabError("gcc is missing on this machine: apt-get install gcc libc6-dev") from None
    return library


def _command_line(  # noqa: PLR0913
    directory: Path, seed: Path, changes: Path, link: str, network: str, library: Path | None
) -> list[str]:
    """Return the arguments of the command. Writes go to a separate file, so that the disk stays clean for the next
    machine.
    """
    changes.unlink(missing_ok=True)
    return [
        # each of its system calls switches processes, which would wait for the scheduler on a busy machine
        *("chrt", "--rr", "1"),
        # and if two processors are involved, each switch is an interrupt that delays all other processes on both of
        # them
        *("taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))),
        # if its parent is killed, it and all of its processes are killed, too
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount-proc", "--fork", "--kill-child"),
        *(
            "env",
            f"KERNEL={directory}/kernel",
            *([f"LD_PRELOAD={library}"] if library else []),
            str(RESTARTED),
            "mem=1024M",
            "root=/dev/ubda",
            "rw",
            "net.ifnames=0",
            "selinux=0",
            "quiet",
        ),
        *(f"ubd0={changes},{directory}/disk", f"ubd1r={seed}"),
        *(f"vec0:transport=tap,ifname={link},gro=1", f"ip={network}"),
        *("con=null", "con0=null,fd:1"),
    ]
