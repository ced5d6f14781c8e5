# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher of a node's job, and its processes from start to finish."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time

from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import (
    ATTEMPT_FILE,
    attempt_environment,
    resume_arguments,
)
from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    MAX_JSON_BYTES,
    file_size,
    parse_json,
    read_bytes,
)
from ansible_collections.muster.training.plugins.module_utils._run.container_creation import (
    ALREADY_REMOVED,
    ContainerCreation,
    removal_command,
)
from ansible_collections.muster.training.plugins.module_utils._run.error_text import final_message
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    descendants,
    describe_exit,
    exit_code,
    is_rank,
    limit_hits,
    oom_kills,
    process_table,
    signal_all,
    start_in_background,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import attempt_directory
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    make_private_directory,
    open_private,
    read_tail,
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    FINAL_STACKS_TIMEOUT,
    IDLE_STEP_INTERVAL,
    KILL_TIMEOUT,
    LAUNCHER_EXIT_GRACE_PERIOD,
    STACKS_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.debugger import write_debug_hook
from ansible_collections.muster.training.plugins.module_utils._supervisor.nccl_setups import read_setups
from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import (
    NOT_ENDED,
    RanksEnd,
    mark_ranks,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    CLOSING,
    first_failed_rank,
    launcher_error,
    rank_end,
    rank_reports,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import (
    StackCollector,
    hook_environment,
    hook_prefix,
    write_hook,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        Data,
        NodeReport,
        Plan,
        RankReport,
    )
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import Mark

    Notice = Tuple[str, str]  # kind (as on the lifeline) and text of a message

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

BASE_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ")


class Waiting:
    """The launcher has not been started yet."""


class Running:
    """The launcher is running."""


class Ending:
    """The launcher's processes have been sent SIGTERM."""

    def __init__(self, since: float, awaited: int | None = None) -> None:
        self.since = since
        self.at = time.monotonic()  # read again, to compare with the times that bin/muster-rank records
        # pid of a launcher that is ending by itself and has not yet reported how its ranks ended
        self.awaited = awaited


class Killing:
    """The grace period is over: the processes are sent SIGKILL."""

    def __init__(self, ending: Ending, since: float) -> None:
        self.ending = ending
        self.since = since


class LauncherEnded:
    """All processes of the launcher have ended, except those that SIGKILL cannot end."""

    def __init__(self, ending: Ending, stuck: list[int], container: str) -> None:
        self.ending = ending
        self.stuck = stuck
        # reason why the container may still exist, and what to do about it; "" if it was removed
        self.container = container


class LauncherProcess:
    """The command that starts this node's ranks, and all its descendants."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.name = plan["node"]["name"]
        self.grace = plan["timeouts"]["grace"]
        self.temporary = plan["temporary_directory"]
        self.attempt = int(plan.get("environment", {}).get("MUSTER_ATTEMPT", 0))
        self.checkpoint = plan.get("checkpoint", "")  # the checkpoint from which this attempt resumes
        self.phase: Waiting | Running | Ending | Killing | LauncherEnded = Waiting()
        self.process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None
        self.stop_reason: str | None = None
        self.ended_by_us = False  # whether this node was told to stop before it failed
        self.rank_failed = ""  # the rank that failed first, and its exit code
        self.shutdown = False  # whether this node is ending its part because its machine is shutting down
        # the newest attempt's directory, and the time at which it was first seen
        self.newest_attempt: tuple[str | None, float] = (None, -math.inf)
        self.failing = ""  # reason why this node is ending its part, if announced before the report
        self.closing: dict[int, float] = {}  # by pid: when torchrun began to end a rank because another rank had failed
        self.noticed = False  # whether torchrun has noticed that a rank failed
        self.log_size = 0  # size of the launcher's log when it was last searched for those ranks
        # pid of the process that is removing this node's container; 0 if it did not start
        self.remover: int | None = None
        self.removed: int | None = None  # the remover's exit code
        self.creation = ContainerCreation(journal.directory)
        self.stacks = StackCollector(journal.directory, plan)
        self.is_saving = False  # whether ranks may still save before the end even though one of them has ended
        # pids that existed before the start, such as a reader that hangs on a dead mount
        self.earlier: set[int] = set()
        self.marks: list[Mark] = []  # the state of the ranks' files when they began to be ended
        self.oom_before = oom_kills()
        self.hits_before = limit_hits()

    def ending(self) -> Ending | None:
        """Return the phase in which its processes are ended, with its start time, or None before that."""
        return self.phase if isinstance(self.phase, Ending) else getattr(self.phase, "ending", None)

    # - start

    def environment(self) -> dict[str, str]:
        """Return the launcher's environment. Raise OSError or ValueError if the user's variables cannot be read."""
        environment = {name: os.environ[name] for name in BASE_ENVIRONMENT if name in os.environ}
        environment.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        environment["PATH"] = self.plan["path_prefix"] + os.pathsep + environment["PATH"]
        if not self.plan.get("bare_launcher"):  # a bare launcher would copy them into command lines
            environment.update(self.plan["environment"])
            environment.update(self.secret_environment())
        environment.update(self.plan.get("launcher_environment", {}))
        environment.update(attempt_environment(self.attempt, self.checkpoint))
        programs = self.journal.path("bin")
        if os.path.isdir(programs):  # bin/ssh and bin/muster-rank come before any others
            environment["PATH"] = programs + os.pathsep + environment["PATH"]
        environment.setdefault("TMPDIR", self.temporary)
        if self.plan.get("stacks"):
            environment.update(hook_environment(self.plan, self.journal.directory, environment))
        return environment

    def secret_environment(self) -> dict[str, str]:
        """Return the user's secret variables. Raise OSError or ValueError if they cannot be read.

        An earlier attempt of the job may have replaced their file, which may be a link into memory.
        """
        path = self.journal.path("environment.json")
        environment = parse_json(read_bytes(path, MAX_JSON_BYTES, follow_links=True).decode("utf-8"))
        if not isinstance(environment, dict) or not all(isinstance(value, str) for value in environment.values()):
            raise ValueError(f"{path} does not contain environment variables")
        return environment

    def container_prefix(self) -> list[str]:
        """Return the container engine's command to prepend, with a mount for secrets; [] without a container."""
        prefix, secrets = self.plan.get("wrap", []), self.journal.path("environment.json")
        if prefix and os.path.islink(secrets):
            directory = os.path.dirname(os.readlink(secrets))
            first = next(index for index, word in enumerate(prefix) if word.startswith("--volume="))
            prefix = [*prefix[:first], f"--volume={directory}:{directory}:ro", *prefix[first:]]
        return prefix

    def with_checkpoint(self, command: list[str]) -> list[str]:
        """Return the command with launch_resume_args if there is a checkpoint. Raise OSError.

        If bin/muster-rank starts the job, it adds them itself, with the variables, which some launchers do not pass on.
        """
        arguments = resume_arguments(self.plan.get("resume_args", []), self.checkpoint)
        if self.plan["rank_logs"] != "ranks":
            return command + arguments
        attempt = {"environment": attempt_environment(self.attempt, self.checkpoint), "arguments": arguments}
        write_json(self.journal.path(ATTEMPT_FILE), attempt)
        return command

    def install_stack_hook(self) -> None:
        """Write the hook that makes stacks available; without it, for example on a full disk, the job also runs."""
        with contextlib.suppress(OSError):
            if self.plan.get("stacks"):
                write_hook(self.journal.directory)
                write_debug_hook(self.journal.directory, self.plan)

    def start(self, command: list[str]) -> bool:
        """Start the job, once; return whether it is running.

        If it cannot start, the reason is written to its log, and it counts as ended.
        """
        if not isinstance(self.phase, Waiting):
            return False
        log_path = self.journal.log_path("launcher.log")
        try:
            make_private_directory(self.temporary)
            self.install_stack_hook()
            self.earlier = set(descendants(os.getpid()))
            with open(log_path, "ab", buffering=0, opener=open_private) as log:
                self.process = subprocess.Popen(
                    self.creation.begin(self.container_prefix())
                    + hook_prefix(self.plan, self.journal.directory)
                    + self.with_checkpoint(command),
                    cwd=self.plan["working_directory"],
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        # ValueError: a NUL, or a character that cannot be represented in the file system's encoding
        except (OSError, ValueError) as error:
            message = f"muster: cannot start {command[0]} in {self.plan['working_directory']}: {error}\n"
            with self.journal.tolerate_full_disk(), open(log_path, "a", encoding="utf-8", opener=open_private) as log:
                log.write(message)
            self.code = 127
            self.phase = Ending(time.monotonic())
            return False
        self.phase = Running()
        self.journal.set_state("running")
        return True

    # - end

    def stop(self, reason: str) -> None:
        """End the job's processes: SIGTERM now, SIGKILL after the grace period."""
        if self.stop_reason is None:
            self.stop_reason = reason
        if self.ending() is None:
            self.ended_by_us = self.process is not None and not self.noticed and not self.has_ended(self.process.pid)
            self.end(time.monotonic(), self.process.pid if self.closing and self.process is not None else None)

    def end(self, now: float, awaited: int | None = None) -> None:
        """Begin to end the job's processes; awaited: pid of a launcher that ends its own ranks."""
        if self.plan.get("stacks") and self.process is not None:
            self.stacks.collect(FINAL_STACKS_TIMEOUT)
        self.marks = mark_ranks(self.plan, self.journal.directory)
        self.phase = Ending(now, awaited)
        signal_all([pid for pid in descendants(os.getpid()) if pid != awaited], signal.SIGTERM)

    @staticmethod
    def has_ended(child: int) -> bool:
        """Return whether a child has ended, without reaping it."""
        try:
            return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def collect_stacks(self) -> list[Data]:
        """Return what this node's ranks are doing, in groups with the same activity; [] if the job is not running."""
        if not self.plan.get("stacks") or not isinstance(self.phase, Running):
            return []
        return self.stacks.collect(STACKS_TIMEOUT)

    def restart_ranks(self, last_heard: float) -> None:
        """Make torchrun restart its ranks at once after a node has fallen silent.

        last_heard: the time of its last message, by the monotonic clock, which no time server sets.

        Otherwise collectives would wait for the dead peer until TCP or NCCL gives up, 2 to 30 minutes. Ending one rank
        on rank 0's node is enough: its agent starts a new rendezvous. Does nothing if the ranks were already restarted.
        """
        directory = self.journal.directory
        self.note_attempt(time.monotonic())
        newest, seen = self.newest_attempt
        if newest is None or self.process is None or seen - IDLE_STEP_INTERVAL > last_heard:
            return
        if self.plan.get("wrap"):  # in a container, ranks are the engine's children, not the launcher's
            ranks = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_rank(int(name), directory)]
        else:
            table = process_table()
            ranks = [pid for pid, (parent, _state) in table.items() if parent == self.process.pid]
        signal_all(ranks, signal.SIGKILL)

    def note_attempt(self, now: float) -> None:
        """Note when the ranks were last started, by the monotonic clock: only an elastic run needs it."""
        if self.plan["elastic"] and self.plan["rank_logs"] == "torchrun":
            newest = attempt_directory(self.journal.log_path("ranks"), 0)
            if newest is not None and newest != self.newest_attempt[0]:
                self.newest_attempt = (newest, now)

    # - each turn

    def step(self, now: float, ended: dict[int, int], excluded: list[int]) -> list[Notice]:
        """Handle the launcher's end; return notices that other nodes need before the report.

        ended: wait statuses just reaped, by pid. excluded: pids of children that are not the launcher's.
        """
        if self.remover in ended:
            self.removed = exit_code(ended[self.remover])
        if self.process is not None and self.process.pid in ended and self.code is None:
            self.code = exit_code(ended[self.process.pid])
            self.process.returncode = self.code
            if isinstance(self.phase, Running):
                self.end(now)
        self.creation.step(self.code)
        if isinstance(self.phase, Running):
            self.note_attempt(now)
        if isinstance(self.phase, Running) and self.plan["rank_logs"] == "ranks" and not self.is_saving:
            self.end_after_failed_rank(now)
        if isinstance(self.phase, Running):
            watches_torchrun = self.plan["rank_logs"] == "torchrun" and not self.is_saving
            return self.kill_late_ranks(now) if watches_torchrun else []
        ending = self.ending()
        return self.finish_ending(now, ending, excluded) if ending is not None else []

    def end_after_failed_rank(self, now: float) -> None:
        """End the remaining processes after a rank has failed: the launcher may be slow to notice, or never do so."""
        ends = [rank_end(self.journal.log_path(""), number) for number in range(self.plan["node"]["slots"])]
        failed = first_failed_rank(ends, math.inf)
        if failed is not None:
            rank = self.plan["node"]["first_rank"] + failed
            self.rank_failed = f"rank {rank} on {self.name} ended with {describe_exit(ends[failed][0])}"
            self.end(now)

    def kill_late_ranks(self, now: float) -> list[Notice]:
        """Kill the ranks that outlive a failed rank by the grace period: torchrun waits 30 s for them."""
        path = self.journal.log_path("launcher.log")
        size = file_size(path)
        if size != self.log_size:
            self.log_size = size
            for pid in CLOSING.findall(read_tail(path)):
                self.closing.setdefault(int(pid), now)
                # otherwise torchrun may restart them
                self.noticed = self.plan["max_restarts"] == 0 and not self.plan["elastic"]
        if self.closing and self.process is not None and not self.plan.get("wrap"):  # pids differ in a container
            launcher, table = self.process.pid, process_table()
            running = [pid for pid, (parent, state) in table.items() if parent == launcher and state not in "ZX"]
            self.closing = {pid: since for pid, since in self.closing.items() if pid in running}
            late = [pid for pid, since in self.closing.items() if now - since > self.grace]
            signal_all(late, signal.SIGKILL)
        waited = now - min(self.closing.values(), default=now)
        if waited > LAUNCHER_EXIT_GRACE_PERIOD and self.plan["max_restarts"] == 0:
            return self.announce_failure(f"a rank on {self.name} has failed")
        return []

    def announce_failure(self, text: str) -> list[Notice]:
        """Return a notice, once, that lets other nodes start ending while processes here use up their grace period."""
        if self.failing == text:
            return []
        self.failing = text
        return [("failing", text)]

    def finish_ending(self, now: float, ending: Ending, excluded: list[int]) -> list[Notice]:
        """Kill the remaining processes once the grace period is over, and remove the container if there is one."""
        is_late = now - ending.since > self.grace
        if (
            self.plan.get("remove")
            and self.remover is None
            and (self.process is None or self.code is not None or is_late)
        ):
            # the container's processes are the engine's children, not ours
            command = removal_command(self.plan, self.journal.directory, KILL_TIMEOUT)
            self.remover = start_in_background(command, self.journal.path("supervisor.log"))
            self.removed = None if self.remover else 127
        remaining = [pid for pid in descendants(os.getpid()) if pid not in excluded and pid not in self.earlier]
        removing = [self.remover, *descendants(self.remover)] if self.remover else []
        killed = [pid for pid in remaining if pid not in removing]
        notices: list[Notice] = []
        if remaining and is_late:
            if not isinstance(self.phase, Killing):
                self.phase = Killing(ending, now)
            if now - self.phase.since > LAUNCHER_EXIT_GRACE_PERIOD:
                ending.awaited = None
            signal_all([pid for pid in killed if pid != ending.awaited], signal.SIGKILL)
        elif remaining and not self.stop_reason and now - ending.since > LAUNCHER_EXIT_GRACE_PERIOD:
            message = f"the launcher on {self.name} ended with {describe_exit(self.code)}"
            if self.code or self.rank_failed:
                notices = self.announce_failure(self.rank_failed or message)
        stuck = bool(remaining) and isinstance(self.phase, Killing) and now - self.phase.since > KILL_TIMEOUT
        if remaining and not stuck:
            return notices
        if self.process is not None and self.code is None:
            # the launcher ended after reap() and before descendants(): its status will be available in the next
            # iteration
            if self.process.pid not in remaining:
                return notices
            self.code = -signal.SIGKILL
        if self.remover and self.removed is None and self.remover not in remaining:
            return notices  # the remover's status will also be available in the next iteration
        self.phase = LauncherEnded(ending, killed, self.describe_container(self.remover in remaining))
        return notices

    def describe_container(self, still_removing: bool) -> str:
        """Return why the container may still exist, and what to do; "" once the engine has removed it."""
        reason = "the container engine is taking a long time to remove it"
        if not still_removing:
            message = final_message(read_tail(self.journal.path("supervisor.log"))) if self.removed else ""
            if not self.removed or ALREADY_REMOVED.search(message):
                return ""
            reason = message or f"the command that removes it ended with {describe_exit(self.removed)}"
        return f"{reason}; remove it there with: {' '.join(self.plan['remove'])}"

    def has_failed(self) -> bool:
        return bool(self.code or self.rank_failed)

    def nccl_setups(self) -> list[Data]:
        """Return what NCCL has set up for the ranks of this node; [] if they need no network."""
        if len(self.plan["nodes"]) < 2:
            return []
        files = self.stacks.files().items()
        pids = {pid: local_rank for pid, (_path, local_rank) in files if local_rank is not None}
        return read_setups(self.journal.directory, self.plan, pids, self.stacks.since)

    def make_report(self, stuck: list[int], container: str = "") -> NodeReport:
        """Return the node report without the watchers' fields; stuck: pids that SIGKILL did not end."""
        code = self.code
        oom_after = oom_kills()
        started = self.process is not None or code is not None
        ranks: list[RankReport] = []
        if started:
            ending = self.ending()
            end = RanksEnd(ending.at, self.marks) if ending is not None else NOT_ENDED
            ranks = rank_reports(self.plan, self.journal.directory, code, self.ended_by_us, end)
        error = launcher_error(code, read_tail(self.journal.log_path("launcher.log")))
        failed_ranks = [str(rank["rank"]) for rank in ranks if rank["exit_code"] != 0]
        # launchers may exit with 0 after a rank was killed by a signal or was never started
        if code == 0 and failed_ranks:
            code, error = 1, f"the launcher ended with exit code 0, but rank {', '.join(failed_ranks)} did not"
        return {
            "exit_code": code,
            "reason": self.rank_failed,
            "state": "ended" if started else "not started",
            "ended": time.time(),
            "ranks": ranks,
            "launcher_error": error,
            "launcher_log": self.journal.log_path("launcher.log"),
            "oom_kills": (oom_after or 0) - (self.oom_before or 0),
            "limit_hits": (limit_hits() or 0) - (self.hits_before or 0),
            "stuck": stuck,
            "mounts": {},
            "gpus": "",
            "health": [],
            "ended_by_us": self.ended_by_us,
            "shutdown": self.shutdown,
            "container": container,
            "unwritten": self.journal.unwritten,
            "shortened": "",
            "last_log": "",
            "last_lines": "",
            "outputs": [],
            "stacks": self.stacks.final_groups(ranks) if self.has_failed() or self.stop_reason else [],
            "operations": self.stacks.final_operations() if self.has_failed() or self.stop_reason else [],
            "nccl": self.nccl_setups() if self.has_failed() or self.stop_reason else [],
        }
