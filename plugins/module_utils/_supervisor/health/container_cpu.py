# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU time of a job in a container, whose processes are children of the container engine.

It is that of their cgroup, which also counts processes that have ended, or of each process if the container has no
cgroup of its own, such as that of rootless podman without the user's own systemd.
"""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants, read_stat
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import marked_processes

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Iterable

TICKS = os.sysconf("SC_CLK_TCK")
GROUPS = "/sys/fs/cgroup"
ACCOUNTING = "cpuacct"  # the cgroup v1 controller


def cpu_ticks(pid: int) -> int:
    """Return the CPU time that a process and its ended children have used, in clock ticks; 0 if it has ended."""
    return sum(int(field) for field in read_stat(f"/proc/{pid}/stat")[11:15])


def parse_group(text: str) -> tuple[str, str]:
    """Return the hierarchy, "" for that of version 2, and the cgroup that accounts for the CPU time of a process.

    text: the content of its /proc/PID/cgroup, cgroups(7). The cgroup is "" if it is unknown.
    """
    result = ("", "")
    for line in text.splitlines():
        fields = line.split(":", 2)
        # at its root, the version 1 controller is mounted but not used
        if len(fields) == 3 and ACCOUNTING in fields[1].split(",") and fields[2] != "/":
            return ACCOUNTING, fields[2]
        if len(fields) == 3 and fields[:2] == ["0", ""]:
            result = ("", fields[2])
    return result


def group_of(pid: int) -> tuple[str, str]:
    """Return the hierarchy and the cgroup of a process; the cgroup is "" if it is unknown."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            return parse_group(stream.read(65536))
    except OSError:
        return "", ""


def group_ticks(group: tuple[str, str]) -> int | None:
    """Return the CPU time that a cgroup has used, in clock ticks, or None if it no longer exists."""
    hierarchy, path = group
    name = "cpuacct.usage" if hierarchy else "cpu.stat"
    try:
        with open(f"{GROUPS}/{hierarchy}{path}/{name}", encoding="ascii") as stream:
            fields = stream.read(4096).split()
        if hierarchy:
            return int(fields[0]) * TICKS // 10**9  # from ns
        return int(fields[fields.index("usage_usec") + 1]) * TICKS // 10**6
    except (OSError, ValueError, IndexError):
        return None


def is_separate(group: tuple[str, str], own: tuple[str, str]) -> bool:
    """Return whether a cgroup contains no process of the other one. A path with ".." is not visible."""
    path = group[1]
    return len(path) > 1 and ".." not in path.split("/") and not (own[1] + "/").startswith(path + "/")


def outermost(groups: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the cgroups that are not below another of them, whose usage would include theirs."""
    result: list[tuple[str, str]] = []
    for hierarchy, path in sorted(set(groups)):
        if not any(hierarchy == outer and path.startswith(above + "/") for outer, above in result):
            result.append((hierarchy, path))
    return result


def pid_namespace(pid: int) -> str:
    """Return the PID namespace of a process, or "" if this user may not see it."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def container_processes(directory: str) -> list[int]:
    """Return the pids of the processes in a run's container, found by the run directory in their environment.

    The engine's client has that variable, too. podman's containers are descendants of the supervisor, its subreaper.
    """
    outside, namespace = set(descendants(os.getpid())), pid_namespace(os.getpid())
    return [
        pid for pid in marked_processes(directory) if pid not in outside or pid_namespace(pid) not in ("", namespace)
    ]


class ContainerCpu:
    """Reads the CPU time of a job in a container."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, str]] = []  # the container's cgroups, once it is running

    def ticks(self, directory: str) -> dict[object, int]:
        """Return the CPU time in clock ticks, by cgroup or pid; {} if no process of the container is found."""
        usage = self.usage()
        if usage:
            return usage
        pids, own = container_processes(directory), group_of(os.getpid())
        groups = [group_of(pid) for pid in pids]
        self.groups = outermost(groups) if all(is_separate(group, own) for group in groups) else []
        tree = {pid for root in pids for pid in (root, *descendants(root))}
        return self.usage() or {pid: cpu_ticks(pid) for pid in tree}

    def usage(self) -> dict[object, int]:
        """Return the CPU time of the known cgroups; {} if any of them no longer exists."""
        usage: dict[object, int] = {}
        for group in self.groups:
            ticks = group_ticks(group)
            if ticks is None:
                return {}
            usage[group] = ticks
        return usage
