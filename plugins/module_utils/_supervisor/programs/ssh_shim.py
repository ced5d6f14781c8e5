# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace ssh for mpirun, mpiexec and pdsh: start a command under another node's supervisor.

It is ``bin/ssh`` in rank 0's run directory, first on the launcher's PATH. ``ssh [OPTIONS] HOST COMMAND...`` asks rank
0's supervisor, through a file, to start the command on HOST; the lifeline carries it, and HOST's own supervisor starts
it in its unit. So remote processes are watched, ended and reported like local ones, and nodes need no logins to each
other. The output stays on HOST, in its ``launcher.log``.

/bin/sh runs the commands, whatever the user's login shell: launchers write them for sh or bash. For a csh login shell,
mpirun would write csh unless it asks with ``echo $SHELL``; this is answered without starting anything.

Only one command is started per node: DeepSpeed uses a second one to kill by pattern, which no run may do.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers recognize; importing typing would cost a few milliseconds
    from typing import Any, Dict

    Data = Dict[str, Any]

WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"  # ssh options that take a value (OpenSSH 9, ssh.c)
SHELL_QUESTION = "echo $SHELL"  # Open MPI 4's option, plm_rsh_module.c
SHELL_ANSWER = "/bin/bash"  # if the shell is bash, mpirun skips ~/.profile, and its commands work in any sh
POLL_INTERVAL = 0.02  # seconds between checks for the exit code; this program cannot import timeouts.py


def read_arguments(arguments: list[str]) -> tuple[str, str]:
    """Return the host and command from ssh's arguments."""
    remaining = list(arguments)
    while remaining and remaining[0].startswith("-") and remaining[0] != "--":
        option = remaining.pop(0)
        if option[-1] in WITH_VALUE and len(option) == 2 and remaining:
            remaining.pop(0)
    if remaining and remaining[0] == "--":
        remaining.pop(0)
    if not remaining:
        raise SystemExit("muster: ssh: missing host")
    return remaining[0].rpartition("@")[2], " ".join(remaining[1:])


def node_rank_of(host: str, nodes: list[Data]) -> int:
    """Return the node_rank of a host, which launchers specify as an address, a name, or the first part of the name."""
    for rank, node in enumerate(nodes):
        if host in (node["address"], node["name"]):
            return rank
    short = [rank for rank, node in enumerate(nodes) if node["name"].partition(".")[0].lower() == host.lower()]
    if len(short) != 1:
        raise SystemExit(f"muster: ssh: {host} is not one of the run's nodes")
    return short[0]


def first_time(path: str) -> bool:
    """Return whether this is the first request for this path."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def request_start(requests: str, rank: int, command: str) -> int:
    """Request that a command be started on a node, and wait for it to end; return its exit code."""
    path = os.path.join(requests, str(rank))
    with open(f"{path}.tmp", "w", encoding="utf-8") as stream:
        json.dump({"command": command}, stream)
    os.replace(f"{path}.tmp", f"{path}.json")
    parent = os.getppid()
    while os.getppid() == parent:  # otherwise the launcher has exited, and nobody is waiting for the exit code
        try:
            with open(f"{path}.exit", encoding="utf-8") as stream:
                code = json.load(stream)
        except FileNotFoundError:
            time.sleep(POLL_INTERVAL)
            continue
        return 1 if code is None else code if code >= 0 else 128 - code
    return 1


def main(arguments: list[str]) -> int:
    directory = os.path.dirname(os.path.dirname(os.path.abspath(arguments[0])))
    with open(os.path.join(directory, "plan.json"), encoding="utf-8") as stream:
        plan = json.load(stream)
    host, command = read_arguments(arguments[1:])
    rank = node_rank_of(host, plan["nodes"])
    if command == SHELL_QUESTION:
        sys.stdout.write(f"{SHELL_ANSWER}\n")
        return 0
    requests = os.path.join(directory, plan.get("logs") or "", "asked")  # requests in this attempt
    os.makedirs(requests, mode=0o700, exist_ok=True)
    if not first_time(os.path.join(requests, f"{rank}.once")):
        sys.stderr.write(f"muster: {host} already has its command, this one is ignored: {command[:200]}\n")
        return 1
    if rank == plan["node"]["node_rank"]:
        os.execv("/bin/sh", ["sh", "-c", command])
    return request_start(requests, rank, command)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
