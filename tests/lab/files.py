"""The files of a lab: keys, known hosts, files for a node's first boot, and the inventory."""

from __future__ import annotations

import hashlib
import io
import re
import shlex
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.lab import machine
from tests.lab.machine import LabError, run

CHECKOUT = Path(__file__).resolve().parents[2]
USER = "muster"


@dataclass(frozen=True)
class Node:
    """A test host."""

    name: str
    address: str
    slots: int = 1


def directory(name: str) -> Path:
    """Return the directory for a lab's files."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", name):
        raise LabError(f"Lab name {name!r}: 1 to 20 small letters, digits and inner hyphens.")
    return CHECKOUT / "build" / ("lab" if name == "lab" else f"lab-{name}")


def identity(name: str) -> str:
    """Return the lab's full name, which differs between checkouts."""
    return f"muster-{hashlib.sha256(str(directory(name)).encode()).hexdigest()[:6]}-{name}"


def host_key(name: str, node: str) -> Path:
    """Return the path of a node's host key; the `.pub` file is next to it."""
    return directory(name) / "hosts" / node / "ssh_host_ed25519_key"


def make_key(path: Path, comment: str) -> None:
    """Create a key unless it exists."""
    if not path.with_suffix(".pub").exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def write_known_hosts(name: str, nodes: Sequence[Node]) -> None:
    """Write the nodes' host keys, which were generated locally, so that no first connection has to be trusted."""
    keys = [host_key(name, node.name).with_suffix(".pub").read_text().split()[:2] for node in nodes]
    lines = [f"{node.address} {' '.join(key)}\n" for node, key in zip(nodes, keys, strict=True)]
    (directory(name) / "known_hosts").write_text("".join(lines))


def make_seed(node: str, host_key: Path, user_key: Path, mounts: Sequence[Path]) -> bytes:
    """Create an archive of the files that a node has in addition to the image; it is reproducible for the same
    settings.
    """
    hosts = f"""127.0.0.1 localhost
127.0.1.1 {node}

::1 localhost ip6-localhost ip6-loopback
ff02::1 ip6-allnodes
ff02::2 ip6-allrouters
"""
    files = {
        "etc/hosts": (hosts.encode(), 0o644, 0),
        "etc/ssh/ssh_host_ed25519_key": (host_key.read_bytes(), 0o600, 0),
        "etc/ssh/ssh_host_ed25519_key.pub": (host_key.with_suffix(".pub").read_bytes(), 0o644, 0),
        f"home/{USER}/.ssh/authorized_keys": (user_key.read_bytes(), 0o600, 1000),
        **{path: (content, 0o644, 0) for path, content in machine.package_settings().items()},
    }
    folders = {f"home/{USER}/.ssh": (0o700, 1000)}
    if any(Path("/root") in path.parents for path in mounts):
        folders["root"] = (0o711, 0)  # the nodes' user must be able to reach the mounts below it
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, (mode, owner) in sorted(folders.items()):
            archive.addfile(_entry(path, mode, owner, tarfile.DIRTYPE))
        for path, (content, mode, owner) in sorted(files.items()):
            entry = _entry(path, mode, owner, tarfile.REGTYPE)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _entry(path: str, mode: int, owner: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.uid, entry.gid = kind, mode, owner, owner
    return entry


def ssh_masters(name: str) -> Path:
    """Return the directory for Ansible's shared ssh connections, with one socket per user and address."""
    return machine.STATE / "ssh" / identity(name)


def end_ssh_masters(name: str, address: str = "*") -> None:
    """Close shared connections to nodes that are gone; ssh itself would take minutes to notice."""
    for socket in ssh_masters(name).glob(f"*@{address}"):
        run(["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "node"], check=False)
        socket.unlink(missing_ok=True)


def ssh_options(name: str) -> list[str]:
    """Return the ssh options: the lab's key, and only its host keys."""
    folder = directory(name)
    options = [
        f'UserKnownHostsFile="{folder}/known_hosts"',
        "GlobalKnownHostsFile=/dev/null",
        "StrictHostKeyChecking=yes",
        "IdentitiesOnly=yes",
    ]
    return ["-i", str(folder / "id_ed25519"), *(word for option in options for word in ("-o", option))]


def inventory(name: str, nodes: Sequence[Node], launch_python: Path | None, launch_script: Path | None = None) -> str:
    """Render the inventory, without `launch_python` and a script if the nodes cannot run it."""
    common = {
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(directory(name) / "id_ed25519"),
        "ansible_ssh_common_args": shlex.join(ssh_options(name)[2:]),
        "ansible_control_path": f"{ssh_masters(name)}/%%r@%%h",
        "ansible_python_interpreter": "/usr/bin/python3",
        **({"launch_python": str(launch_python)} if launch_python else {}),
        **({"launch_script": str(launch_script)} if launch_python and launch_script else {}),
    }
    hosts = {
        node.name: {"ansible_host": node.address, "node_address": node.address, "node_slots": node.slots}
        for node in nodes
    }
    head = "---\n# Test hosts, written by tests/lab; gone with `make lab-down`.\n"
    return head + yaml.safe_dump({"training": {"hosts": hosts, "vars": common}}, sort_keys=False, width=1000)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read, even while it is being written."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def remove_files(folder: Path) -> None:
    """Remove the files that `up` wrote; other files, such as records of runs, stay."""
    for name in ("inventory.yml", "known_hosts", "id_ed25519", "id_ed25519.pub"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "hosts", ignore_errors=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()
