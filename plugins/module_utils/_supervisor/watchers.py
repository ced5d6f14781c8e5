# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch a node's mounts, which may die, its GPUs, which may fail, and its logs, which may become too large."""

from __future__ import annotations

import os
import re
import signal
import sys

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size, open_regular
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import (
    ACCOUNTING_FILE,
    ACCOUNTING_ON,
    ACCOUNTING_QUERIES,
    SAMPLE_ENVIRONMENT,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_tools import tool_of
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    describe_exit,
    exit_code,
    signal_all,
    start_in_background,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import TAIL_BYTES
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    FINAL_CHECK_TIMEOUT,
    LOG_CHECK_INTERVAL,
    MOUNT_CHECK_INTERVAL,
    MOUNT_CHECK_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.log_limit import all_logs, limit_logs

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

    Notice = Tuple[str, str]  # kind (as on the lifeline) and text of a message

SNAPSHOT_AT = 8  # number of samples before nvidia-smi's full output is recorded, which happens once

# Lists a directory; the exit code is the errno value, or 0 if the directory responds.
MOUNT_CHECK = """
import os, sys
try:
    with os.scandir(sys.argv[1]) as entries:
        next(entries, None)
except OSError as error:
    os._exit(error.errno or 5)
"""

# A line in gpus.csv, and the text that replaces the values for a lost GPU.
SAMPLE = re.compile(r"[0-9/]+ [0-9:.]+, (?P<index>[0-9]{1,9}), (?P<values>.*)")
GPU_FAILED = re.compile(r".*\[(GPU is lost|GPU requires reset)\]|[^0-9]*\[(Unknown Error)\][^0-9]*\Z")


def mount_points() -> set[str]:
    """Return all mount points; reading the list never waits for a mount."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        fields = [line.split(" ")[4] for line in stream]
    return {re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field) for field in fields}


def read_sample(text: str, code: int, known_indices: set[str], tool: str = "nvidia-smi") -> tuple[set[str], str]:
    """Return the indexes of the GPUs in a sample, and an error message or, if all GPUs are healthy, "".

    Without indices or an error, the sample is inconclusive. text, code: nvidia-smi's output, in gpus.csv's columns, and
    its exit code; known_indices: those in an earlier sample; tool: the program's name.
    """
    indices, failed, message = set(), [], ""
    for line in text.splitlines():
        row = SAMPLE.match(line)
        if row is None:
            message = line.strip()[:2000] or message
            continue
        indices.add(row["index"])
        failure = GPU_FAILED.match(row["values"])
        if failure:
            failed.append(f"GPU {row['index']}: {failure[1] or failure[2]}")
    if code:
        return indices, message or f"{tool} ended with {describe_exit(code)}"
    if not indices or not text.endswith("\n"):  # empty or truncated, as on a full disk
        return set(), ""
    missing = sorted(known_indices - indices, key=int)
    if missing:
        failed.append(f"{tool} no longer shows GPU {', '.join(missing)}{message and f' ({message})'}")
    return indices, "; ".join(failed)


class Watchers:
    """Watches a node's mounts, GPUs and logs in child processes, because they may hang; reports each change once."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.name = plan["node"]["name"]
        self.mount_checks: dict[str, tuple[int, float]] = {}  # pid and start time of the check, by mount point
        self.mounts_due = 0.0
        self.mounts: dict[str, str] = {}  # errors of mount points that have died during the run, by mount point
        self.sampler: int | None = None  # pid of the nvidia-smi process that is running
        self.samples_due = 0.0
        self.samples = 0  # number of samples started
        self.tool = tool_of(plan)
        # pid of the nvidia-smi process that records the full output, once; 0: it has ended, or there is none
        self.snapshot: int | None = None if self.tool.has_snapshot else 0
        self.accounting: list[str] = []  # the next queries about processes that have ended
        # pid of that query; 0: it has ended, or there is none
        self.accountant: int | None = None if self.tool.has_accounting else 0
        self.accounts = False  # whether the driver's accounting mode is on
        self.sample_start = 0  # offset of the newest sample in gpus.csv
        self.gpus: set[str] = set()  # the indices in the first sample
        self.gpus_error = ""  # nvidia-smi's error while any GPU is faulty
        self.logs_due = 0.0
        self.shortened = ""  # how logs that exceeded the limit were shortened, or the error
        self.final_check: float | None = None  # time at which the final checks began

    def begin_attempt(self, plan: Plan) -> None:
        """Watch the job of the next attempt, whose final checks have not started."""
        self.plan = plan
        self.final_check = None

    def step(self, now: float, ended: dict[int, int], started: bool, running: bool) -> list[Notice]:
        """Continue watching, and return notices of changes.

        ended: wait statuses just reaped, by pid. started: whether the job was started. running: whether it is running.
        """
        notices = self.tend_mounts(now, ended, running) + self.sample_gpus(now, ended, running)
        return notices + (self.tend_logs(now) if started else [])

    def pids(self) -> list[int]:
        """Return the pids of the watchers' processes, which need not end before the job is considered to have ended."""
        pids = [pid for pid, _since in self.mount_checks.values()]
        return pids + ([self.sampler] if self.sampler and self.final_check is not None else [])

    def start_final_checks(self, now: float, failed: bool, gpus: bool) -> list[Notice]:
        """Start the final checks: of the GPU usage of ended processes and, if the node failed, of mounts and GPUs.

        failed: whether the node failed; gpus: whether to sample the GPUs, too.
        """
        self.final_check = now
        notices = self.check_mounts(now) if failed else []
        if failed and gpus and not self.sampler:  # a lost GPU ends the job before the next regular sample
            self.take_sample(now)
        if self.accounts and not self.accounting:  # otherwise the job ended before usage by earlier jobs was queried
            self.accounting = list(ACCOUNTING_QUERIES)
        return notices

    def has_finished_checks(self, now: float) -> bool:
        """Return whether the final checks have finished or timed out."""
        waiting = self.mount_checks or self.sampler or self.accounting
        return not waiting or now - (self.final_check or now) >= FINAL_CHECK_TIMEOUT

    def check_mounts(self, now: float) -> list[Notice]:
        """List the contents of each mount in the plan in a child process, because a dead mount may block it forever."""
        self.mounts_due = now + MOUNT_CHECK_INTERVAL
        notices = []
        mounted = mount_points() if self.plan.get("mounts") else set()
        for point in self.plan.get("mounts", ()):
            if point not in mounted:
                notices += self.note_mount(point, "nothing is mounted there anymore")
            elif point not in self.mount_checks:
                pid = start_in_background([sys.executable, "-I", "-S", "-c", MOUNT_CHECK, point], os.devnull)
                if pid:
                    self.mount_checks[point] = (pid, now)
        return notices

    def tend_mounts(self, now: float, ended: dict[int, int], running: bool) -> list[Notice]:
        """Return notices of mounts that die during the run, and of mounts that come back."""
        notices = self.check_mounts(now) if running and now >= self.mounts_due else []
        for point, (pid, since) in list(self.mount_checks.items()):
            error = None
            if pid in ended:
                del self.mount_checks[point]
                code = exit_code(ended[pid])
                if code >= 0 and code != 1:  # 1: Python itself could not start
                    error = os.strerror(code) if code else ""
            elif now - since > MOUNT_CHECK_TIMEOUT or (
                self.final_check is not None and now - self.final_check > FINAL_CHECK_TIMEOUT
            ):
                error = f"no reply within {now - since:.0f} s"
                signal_all([pid], signal.SIGKILL)
            if error is not None:
                notices += self.note_mount(point, error)
        return notices

    def note_mount(self, point: str, error: str) -> list[Notice]:
        """Return a notice, only once, that a mount has died (error) or come back (no error)."""
        if bool(error) == (point in self.mounts):
            return []
        if error:
            self.mounts[point] = error
            return [("mount", f"the mount {point} on {self.name} has died: {error}")]
        del self.mounts[point]
        return [("mount", f"the mount {point} on {self.name} is responding again")]

    def sample_gpus(self, now: float, ended: dict[int, int], running: bool) -> list[Notice]:
        """Record the GPUs' activity while the job is running, using one process at a time, because it may hang."""
        notices = []
        if self.sampler in ended:
            code = exit_code(ended[self.sampler])
            pid, self.sampler = self.sampler, None
            if pid == self.snapshot:
                self.snapshot = 0  # the pid may be reused
            elif pid == self.accountant:
                self.accountant = 0
                self.read_accounting()
            else:
                if code >= 0:
                    notices = self.read_new_sample(code)
                if self.accountant is None:
                    self.accounting = list(ACCOUNTING_QUERIES[:1])
        if self.final_check is not None and self.sampler and now - self.final_check > FINAL_CHECK_TIMEOUT:
            signal_all([self.sampler], signal.SIGKILL)
        elif self.accounting and not self.sampler and (running or self.final_check is not None):
            self.query_accounting()
        elif running and not self.sampler and now >= self.samples_due:
            if self.samples >= SNAPSHOT_AT and self.snapshot is None:
                path = self.journal.path("nvidia-smi.txt")
                self.snapshot = self.sampler = start_in_background(self.plan["gpu_samples"][:1], path)
            else:
                self.take_sample(now)
        return notices

    def take_sample(self, now: float) -> None:
        if self.plan.get("gpu_samples"):
            path = self.journal.path("gpus.csv")
            self.samples += 1
            self.samples_due = now + self.plan["timeouts"]["sample"]
            self.sample_start = file_size(path)
            self.sampler = start_in_background(self.plan["gpu_samples"], path, SAMPLE_ENVIRONMENT)

    def query_accounting(self) -> None:
        """Start nvidia-smi with the next query about processes."""
        command = [self.plan["gpu_samples"][0], self.accounting.pop(0), "--format=csv,noheader,nounits"]
        self.accountant = self.sampler = start_in_background(command, self.journal.path(ACCOUNTING_FILE))

    def read_accounting(self) -> None:
        """If accounting is enabled in the driver, query the usage of earlier jobs so that it can be subtracted."""
        if not self.accounts and self.final_check is None:
            path = self.journal.path(ACCOUNTING_FILE)
            with self.journal.tolerate_full_disk(), open(path, "rb", opener=open_regular) as stream:
                self.accounts = ACCOUNTING_ON.encode() in stream.read(TAIL_BYTES)
            self.accounting = list(ACCOUNTING_QUERIES[1:]) if self.accounts else []

    def read_new_sample(self, code: int) -> list[Notice]:
        """Return notices about the GPUs' health based on the newest sample; code: nvidia-smi's exit code."""
        with self.journal.tolerate_full_disk(), open(
            self.journal.path("gpus.csv"), "rb", opener=open_regular
        ) as stream:
            stream.seek(self.sample_start)
            sample = stream.read(TAIL_BYTES).decode("utf-8", "replace")
            gpus, error = read_sample(sample, code, self.gpus, self.tool.name)
            self.gpus = self.gpus or gpus
            if gpus or error:
                return self.note_gpus(error)
        return []

    def note_gpus(self, error: str) -> list[Notice]:
        """Return a notice, only once, that the GPUs have started to fail (error) or are working again (no error)."""
        if bool(error) == bool(self.gpus_error):
            return []
        self.gpus_error = error
        text = f"are failing: {error}" if error else "work again"
        return [("gpus", f"the GPUs on {self.name} {text}")]

    def tend_logs(self, now: float) -> list[Notice]:
        """Keep the logs within their limit while the job is running, and return a notice once."""
        limit = self.plan.get("log_limit", 0)
        if not limit or now < self.logs_due:
            return []
        self.logs_due = now + LOG_CHECK_INTERVAL
        try:
            shortened_logs = limit_logs(all_logs(self.plan, self.journal.directory), limit)
            message = (
                f"the middle of {shortened_logs[0]}{' and others' if shortened_logs[1:] else ''} was removed"
                if shortened_logs
                else ""
            )
        except OSError as error:
            message = f"its file system cannot remove the middle of {error.filename}: {error.strerror}"
        if not message or self.shortened:
            return []
        self.shortened = f"the logs on {self.name} took up more than {limit / 1e9:g} GB (launch_log_limit): {message}"
        if self.journal.state == "running":
            self.journal.set_state("running", self.shortened)
        return [("logs", self.shortened)]
