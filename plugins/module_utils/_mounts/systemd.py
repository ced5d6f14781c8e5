# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access to the machine: systemd, its journal, umount and files; every wait has a timeout."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command, CommandOutput
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import MountDriver, MountError
from ansible_collections.muster.training.plugins.module_utils._mounts.probe import mounted_at

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Sequence

QUERY_TIMEOUT = 10.0  # seconds allowed for queries to systemd or the kernel
RELOAD_TIMEOUT = 60.0  # seconds allowed for systemd to reload all units on a busy machine
CONNECTIONS = "/sys/fs/fuse/connections"


def call(*argv: str, seconds: float = QUERY_TIMEOUT) -> CommandOutput:
    """Run a command until it ends or times out, and return its output."""
    return Command(argv, env={**os.environ, "LC_ALL": "C.UTF-8"}).output(time.monotonic() + seconds)


def call_checked(*argv: str) -> str:
    """Run a command that does not wait for a server, and return its output. Raise MountError if it fails."""
    result = call(*argv, seconds=RELOAD_TIMEOUT)
    if result.code != 0:
        raise MountError(f"`{' '.join(argv)}` failed: {result.text.strip() or 'no output'}")
    return result.text


def missing_requirement(kind: MountDriver) -> str:
    """Return a mount driver's missing requirement with its remedy, or an empty string."""
    if not os.path.isdir("/run/systemd/system"):
        return "systemd is not running on this node. Mounts are systemd units: use a machine or container with systemd"
    if not shutil.which(kind.program):
        return f"{kind.program} is not installed. Install it: ansible-playbook site.yml --tags {kind.role}"
    if not supports_filesystem(kind.filesystem):
        call("modprobe", kind.filesystem)
        if not supports_filesystem(kind.filesystem):
            return (
                f"this node's kernel {os.uname().release} does not support {kind.filesystem}, and `modprobe "
                f"{kind.filesystem}` failed. Install the kernel's modules (on Ubuntu, linux-modules-extra-$(uname "
                "-r)) and reboot the node; in a container, the host's kernel must have the module"
            )
    if kind.device and not os.path.exists(kind.device):
        return (
            f"{kind.device}, which FUSE needs, is missing. If this node is a container, start it with "
            f"--device {kind.device} --cap-add SYS_ADMIN; otherwise, reboot it"
        )
    return ""


def supports_filesystem(filesystem: str) -> bool:
    """Return whether the kernel supports a file system."""
    with open("/proc/filesystems", encoding="ascii") as stream:
        return filesystem in stream.read().split()


def unit_state(unit: str) -> dict[str, str]:
    """Return ActiveState, UnitFileState and NeedDaemonReload of a unit."""
    output = call_checked("systemctl", "show", "--property=ActiveState,UnitFileState,NeedDaemonReload", "--", unit)
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


def read_journal(unit: str, kind: MountDriver, since: float) -> str:
    """Return messages since a given time from a unit, its program and, where relevant, the kernel."""
    after = f"--since=@{since:.6f}"
    plain = ("--output=cat", "--no-pager", "--quiet")
    messages = call("journalctl", *plain, after, f"--unit={unit}").text
    if kind.kernel_pattern:
        lines = call("journalctl", *plain, after, "--dmesg").text.splitlines()
        messages += "".join(f"{line}\n" for line in lines if re.search(kind.kernel_pattern, line))
    return messages


def find_users(path: str) -> list[str]:
    """Return the processes with open files or a working directory below a mount, as `pid name`."""
    users = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        links = [f"/proc/{pid}/cwd", f"/proc/{pid}/root"]
        with contextlib.suppress(OSError):
            links += [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
        for link in links:
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target == path or target.startswith(path.rstrip("/") + "/"):
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
                    users.append(f"{pid} {stream.read().strip()}")
                break
    return users


def unmount(path: str) -> None:
    """Unmount a responsive mount; raise MountError with its users if it is busy."""
    result = call("umount", path)
    if mounted_at(path):
        users = find_users(path)
        if users:
            raise MountError(
                f"{path} is in use by {', '.join(users[:5])}, and was left unchanged. Wait for these processes to "
                "end, or stop them (for a run, use stop.yml), then run this again"
            )
        raise MountError(f"`umount {path}` failed: {result.text.strip() or 'no answer'}")


def abort_requests(path: str) -> None:
    """Abort all requests to a FUSE mount with an error, because an unavailable server will not respond."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            fields = line.split(" ")
            if fields[4] == path and " fuse" in line:
                minor = fields[2].partition(":")[2]
                with contextlib.suppress(OSError), open(f"{CONNECTIONS}/{minor}/abort", "w", encoding="ascii") as door:
                    door.write("1")


def force_unmount(path: str, unit: str) -> None:
    """Unmount a path, whatever its state, and end all of its unit's processes."""
    deadline = time.monotonic() + QUERY_TIMEOUT
    while mounted_at(path) and time.monotonic() < deadline:
        abort_requests(path)
        call("umount", "--lazy", path)
    call("systemctl", "stop", "--", unit)
    call("systemctl", "kill", "--signal=KILL", "--", unit)
    end_processes(unit)
    call("systemctl", "reset-failed", "--", unit)


def end_processes(unit: str) -> None:
    """Kill the remaining processes in the unit's cgroup, because the mounting program outlives a failed mount."""
    escaped = unit.replace("\\", "\\\\")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cgroup", encoding="utf-8") as stream:
                group = stream.read()
        except OSError:
            continue
        if re.search(rf"/{re.escape(unit)}$|/{re.escape(escaped)}$", group, re.MULTILINE):
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def read_text(path: str) -> str:
    """Return a file's text, or an empty string if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def is_private(path: str) -> bool:
    """Return whether a file is owned by root and only root can access it."""
    status = os.stat(path)
    return (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, 0, 0o600)


def write(path: str, text: str, mode: int) -> None:
    """Write a file atomically, with its final permissions from the start."""
    number, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".muster-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            os.fchmod(number, mode)
            stream.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def make_private(directories: Sequence[str]) -> None:
    """Create missing directories, private to root."""
    for directory in directories:
        if not os.path.isdir(directory):
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            os.mkdir(directory, 0o700)
