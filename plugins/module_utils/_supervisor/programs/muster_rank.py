# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank in a run launched with accelerate, deepspeed or mpirun; the launcher starts this program instead of the job.

It is ``bin/muster-rank`` in each node's run directory, first on the launcher's PATH, and reads its settings from files
there. The launcher passes only this single word from node to node, so it cannot misquote, truncate or expose the job's
arguments, variables or secrets.

It refuses to run on a node that differs from the rank table, gives the job the same environment under every launcher,
keeps its output in ``ranks/LOCAL_RANK``, and records how it ended, which launchers report wrongly or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each rank a few milliseconds
    from typing import Any, Dict, NoReturn

    Data = Dict[str, Any]

MISPLACED = 70  # exit code: EX_SOFTWARE from sysexits


class MisplacedError(Exception):
    """The launcher started a rank on a different node from the one in the rank table."""


def read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def read_number(environment: dict[str, str], names: list[str]) -> int | None:
    """Return the value of the first of these variables that is set, as a number."""
    value = next((environment[name] for name in names if environment.get(name)), None)
    return int(value) if value is not None and value.isdigit() else None


def assigned_ranks(plan: Data, rules: Data, environment: dict[str, str]) -> tuple[int, int]:
    """Return this process's (rank, local rank). Raise MisplacedError if the launcher disagrees with the rank table."""
    node = plan["node"]
    rank, world = read_number(environment, rules["rank"]), read_number(environment, rules["world"])
    variables = " or ".join(rules["rank"])
    if rank is None and plan["world_size"] == 1:  # accelerate starts a single process without setting any variables
        rank = 0
    if rank is None:
        raise MisplacedError(f"{plan['launcher']} does not set {variables} for a process on {node['name']}")
    if world is not None and world != plan["world_size"]:
        raise MisplacedError(
            f"{plan['launcher']} started with world size {world} on {node['name']}, but {plan['world_size']} was "
            "planned"
        )
    if not 0 <= rank - node["first_rank"] < node["slots"]:
        last = node["first_rank"] + node["slots"] - 1
        raise MisplacedError(
            f"{plan['launcher']} started rank {rank} on {node['name']}, where ranks {node['first_rank']} to {last} "
            "were planned"
        )
    return rank, rank - node["first_rank"]


def rank_environment(  # noqa: PLR0913
    plan: Data, secrets: dict[str, str], inherited: dict[str, str], rank: int, local_rank: int, directory: str
) -> dict[str, str]:
    """Return the job's environment: launcher's, plan's, user's and rank's variables; later ones override."""
    environment = {**inherited, **plan["environment"], **secrets}
    if plan.get("stacks"):  # see stack_hook.py
        paths = [os.path.join(directory, "hooks"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if plan["node"]["slots"] > 1:  # as torchrun does: otherwise each rank would start one thread per core
        environment.setdefault("OMP_NUM_THREADS", "1")
    environment.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(plan["world_size"]),
            "LOCAL_WORLD_SIZE": str(plan["node"]["slots"]),
            "NODE_RANK": str(plan["node"].get("attempt_rank", plan["node"]["node_rank"])),
            "MUSTER_RUN_DIRECTORY": directory,
            "TORCHELASTIC_ERROR_FILE": os.path.join(logs_of(plan, directory, local_rank), "error.json"),
        }
    )
    return environment


def logs_of(plan: Data, directory: str, local_rank: int) -> str:
    """Return the directory of a rank's logs in the run directory; each attempt has its own log directory."""
    return os.path.join(directory, plan.get("logs") or "", "ranks", str(local_rank))


def job_command(rules: Data, arguments: list[str], local_rank: int) -> list[str]:
    """Return the job's command; arguments: arguments added by the launcher, namely DeepSpeed's --local_rank."""
    added = [
        f"--local_rank={local_rank}" if argument.startswith("--local_rank=") else argument for argument in arguments
    ]
    return [*rules["command"], *added, *rules["arguments"]]


def read_attempt(directory: str) -> Data:
    """Return the variables and arguments of this attempt, as set by the supervisor, or none if the file is missing."""
    nothing: Data = {"environment": {}, "arguments": []}
    try:
        attempt = read_json(os.path.join(directory, "attempt.json"))
    except (OSError, ValueError):
        return nothing
    return {**nothing, **attempt} if isinstance(attempt, dict) else nothing


def write_exit(path: str, rank: int, code: int) -> None:
    """Record how a rank ended (its exit code, or the negative signal number) and when, according to two clocks.

    `moment` is by the machine's monotonic clock, which all its processes share and nobody sets.
    """
    descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        record = {"rank": rank, "exit_code": code, "ended": time.time(), "moment": time.monotonic()}
        json.dump(record, stream)
    os.replace(f"{path}.tmp", path)


def become(command: list[str], environment: dict[str, str], directory: str) -> NoReturn:
    """Exec the job, with its output in this directory."""
    try:
        for descriptor, name in ((1, "stdout.log"), (2, "stderr.log")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(os.path.join(directory, name), flags, 0o600), descriptor)
        os.execvpe(command[0], command, environment)
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        os.write(2, f"muster: cannot start {command[0]}: {error}\n".encode("utf-8", "backslashreplace"))
    os._exit(127)


def run(directory: str, arguments: list[str]) -> int:
    """Run one rank until it ends; return its exit code, or the negative number of the signal that ended it."""
    plan, rules = read_json(os.path.join(directory, "plan.json")), read_json(os.path.join(directory, "rank.json"))
    secrets = read_json(os.path.join(directory, "environment.json"))
    rank, local_rank = assigned_ranks(plan, rules, dict(os.environ))
    logs = logs_of(plan, directory, local_rank)
    os.makedirs(logs, mode=0o700, exist_ok=True)
    environment = rank_environment(plan, secrets, dict(os.environ), rank, local_rank, directory)
    attempt = read_attempt(directory)
    environment.update(attempt["environment"])
    rules = {**rules, "arguments": [*rules["arguments"], *attempt["arguments"]]}
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # blocked until there is a child to pass them to
    child = os.fork()
    if child == 0:
        for signum in signals:  # restore the default: a shell's `&` may have caused them to be ignored
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        become(job_command(rules, arguments, local_rank), environment, logs)

    def pass_on(signal_number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal_number)

    for signum in signals:
        signal.signal(signum, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    _pid, status = os.waitpid(child, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    write_exit(os.path.join(logs, "exit.json"), rank, code)
    return code


def main(arguments: list[str]) -> int:
    try:
        code = run(os.path.dirname(os.path.dirname(os.path.abspath(arguments[0]))), arguments[1:])
    except MisplacedError as problem:
        sys.stderr.write(f"muster: {problem}\n")
        return MISPLACED
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
