# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find this node's rank processes, and those that handle a signal."""

from __future__ import annotations

import collections
import os
import signal

from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    handled_signals,
    local_rank_in,
    process_status,
    process_table,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import (
    NO_OWN_SIGTERM_HANDLER,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

# A process of the job. local_rank: its own, or that of the rank that started it; None if unknown; relay: whether it
# only starts the rank and waits for it.
Member = collections.namedtuple("Member", "parent local_rank relay")

# Programs that start a rank and wait for it: shells, and container engines' programs.
RELAYS = ("sh", "bash", "dash", "zsh", "ksh", "busybox", "env", "numactl", "taskset", "nice", "timeout", "time", "uv")
ENGINES = ("docker", "podman", "conmon", "crun", "runc", "tini", "docker-init", "catatonit", "containerd-shim")


def rank_pids(members: Mapping[int, Member]) -> list[int]:
    """Return the ranks' pids: for each rank, the first of its processes that is not a relay.

    Workers of a rank, such as a DataLoader's, have inherited its handlers and must not receive its signals.
    """
    children: dict[int, list[int]] = {}
    for pid, member in members.items():
        children.setdefault(member.parent, []).append(pid)
    ranks = []
    queue = [pid for pid, member in members.items() if member.parent not in members]
    while queue:
        pid = queue.pop()
        member = members[pid]
        descending = children.get(pid, [])
        if not member.relay:
            ranks.append(pid)
            descending = other_ranks(members, children, pid)
        queue.extend(descending)
    return sorted(ranks)


def other_ranks(members: Mapping[int, Member], children: Mapping[int, list[int]], rank: int) -> list[int]:
    """Return the nearest descendants of a rank that belong to another rank, such as those that Lightning starts."""
    others, queue = [], list(children.get(rank, ()))
    while queue:
        pid = queue.pop()
        if members[pid].local_rank not in (None, members[rank].local_rank):
            others.append(pid)
        else:
            queue.extend(children.get(pid, ()))
    return others


def read_members(plan: Plan, directory: str, launcher: int) -> dict[int, Member]:
    """Return the job's processes on this node by pid, found by the environment that they inherited.

    launcher: pid of the launcher, which is a rank itself only if it starts no others.
    """
    mark = b"MUSTER_RUN_DIRECTORY=" + os.fsencode(directory)
    starts_ranks = plan["rank_logs"] != "launcher"
    members = {}
    for pid, (parent, state) in process_table().items():
        variables = [] if state in "ZX" else read_parts(f"/proc/{pid}/environ")
        if mark not in variables:
            continue
        local_rank = local_rank_in(variables)
        arguments = read_parts(f"/proc/{pid}/cmdline")
        name = read_name(pid)
        starter = starts_ranks and (local_rank is None or is_rank_program(arguments, directory))
        starter = starter or (pid == launcher and bool(plan.get("wrap")))
        members[pid] = Member(parent, local_rank, starter or name in RELAYS or name in ENGINES)
    return members


def is_rank_program(arguments: list[bytes], directory: str) -> bool:
    """Return whether these are the arguments of bin/muster-rank, which passes every signal on to its rank."""
    return os.fsencode(os.path.join(directory, "bin", "muster-rank")) in arguments[:6]


def read_parts(path: str) -> list[bytes]:
    """Return the parts of a file in /proc that are separated by NUL, or [] if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(2**20).split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return []


def read_name(pid: int) -> str:
    """Return the name of a process's program, or "" if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as stream:
            return stream.read().strip().decode("utf-8", "replace")
    except OSError:
        return ""


def catches(pid: int, number: int) -> bool:
    """Return whether a process has its own handler for a signal; without one, most signals would end it."""
    handled = handled_signals(process_status(pid))
    return number in handled and not (number == signal.SIGTERM and NO_OWN_SIGTERM_HANDLER in handled)
