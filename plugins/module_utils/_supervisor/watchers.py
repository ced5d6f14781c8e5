# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is watched on a node beside the job: mounts that may die, GPUs that may fail, logs that may grow too large.

Private to this collection.
"""

from __future__ import annotations

import os
import re
import signal
import sys

from ansible_collections.muster.training.plugins.module_utils._run.directory import TAIL_BYTES, regular
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import (
    ACCOUNTING_FILE,
    ACCOUNTING_ON,
    ACCOUNTING_QUERIES,
)
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    describe_exit,
    exit_code,
    run_quietly,
    signal_all,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.log_limit import (
    LOG_INTERVAL,
    all_logs,
    bound_logs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

    Notice = Tuple[str, str]  # its kind, as on the lifeline, and its text

LOOK_INTERVAL = 10.0  # seconds between two looks at a mount
LOOK_PATIENCE = 10.0  # seconds a mount may take to answer
PICTURE_AT = 8  # how many samples of the GPUs are taken before nvidia-smi is asked once for all that it shows a person
LAST_LOOK_PATIENCE = 2.0  # seconds that the report of a node that failed waits for a last look

# Exit code: the error number of looking into a directory, 0 where it answers.
LOOK = """
import os, sys
try:
    with os.scandir(sys.argv[1]) as entries:
        next(entries, None)
except OSError as error:
    os._exit(error.errno or 5)
"""

# A line of gpus.csv, and what stands there for the values of a GPU that is gone.
SAMPLE = re.compile(r"[0-9/]+ [0-9:.]+, (?P<index>[0-9]+), (?P<values>.*)")
GPU_FAILED = re.compile(r".*\[(GPU is lost|GPU requires reset)\]|[^0-9]*\[(Unknown Error)\][^0-9]*\Z")


def mount_points() -> set[str]:
    """Return where something is mounted; reading this never waits for a mount."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        fields = [line.split(" ")[4] for line in stream]
    return {re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field) for field in fields}


def read_sample(text: str, code: int, known: set[str]) -> tuple[set[str], str]:
    """Return the indices of the GPUs of one sample, and what is wrong with GPUs: "" if all are well.

    No index and no error: it says nothing. text, code: what nvidia-smi wrote, in the columns of gpus.csv, and how it
    ended; known: the indices that an earlier sample has shown.
    """
    found, failed, words = set(), [], ""
    for line in text.splitlines():
        row = SAMPLE.match(line)
        if row is None:
            words = line.strip()[:2000] or words
            continue
        found.add(row["index"])
        gone = GPU_FAILED.match(row["values"])
        if gone:
            failed.append(f"GPU {row['index']}: {gone[1] or gone[2]}")
    if code:
        return found, words or f"nvidia-smi ended with {describe_exit(code)}"
    if not found or not text.endswith("\n"):  # nothing, or half of it, as on a full disk
        return set(), ""
    missing = sorted(known - found, key=int)
    if missing:
        failed.append(f"nvidia-smi no longer shows GPU {', '.join(missing)}{words and f' ({words})'}")
    return found, "; ".join(failed)


class Watchers:
    """Watches through child processes, since what is watched may never answer; says what has changed, once."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.name = plan["node"]["name"]
        self.looks: dict[str, tuple[int, float]] = {}  # mount point: pid of what looks into it, and since when
        self.looks_due = 0.0
        self.mounts: dict[str, str] = {}  # mount points that have died during the run, and the error of each
        self.sampler: int | None = None  # pid of what takes a sample of the GPUs
        self.samples_due = 0.0
        self.samples = 0  # how many were begun
        self.picture: int | None = None  # pid of what has nvidia-smi show all, once
        self.accounting: list[str] = []  # what nvidia-smi is to be asked next of processes that are over
        self.accountant: int | None = None  # pid of what asks so; 0: it has been asked
        self.accounts = False  # whether the driver keeps account of them
        self.sample_start = 0  # where the newest begins in gpus.csv
        self.gpus: set[str] = set()  # the indices of those that the first sample has shown
        self.gpus_error = ""  # what nvidia-smi says since it no longer finds all GPUs well
        self.logs_due = 0.0
        self.shortened = ""  # what was done to the logs, or could not be, since they took more than they may
        self.last_look: float | None = None  # when this node, having failed, looked for the last time

    def step(self, now: float, ended: dict[int, int], started: bool, running: bool) -> list[Notice]:
        """Go on watching; return what has changed.

        ended: the wait statuses of what was just reaped. started: whether the job was; running: and nobody ends it.
        """
        notices = self.tend_mounts(now, ended, running) + self.sample_gpus(now, ended, running)
        return notices + (self.tend_logs(now) if started else [])

    def pids(self) -> list[int]:
        """Return the processes below this supervisor that the end of the job does not wait for."""
        looks = [pid for pid, _since in self.looks.values()]
        return looks + ([self.sampler] if self.sampler and self.last_look is not None else [])

    def look_last(self, now: float, failed: bool, gpus: bool) -> list[Notice]:
        """Begin to look once more: at what the GPUs' processes took, and at what may have made a node fail.

        failed: whether it has; gpus: look also at them.
        """
        self.last_look = now
        notices = self.look(now) if failed else []
        if failed and gpus and not self.sampler:  # a GPU that is lost ends the job at once
            self.take_sample(now)
        if self.accounts and not self.accounting:  # else the job was over before it was asked what earlier ones took
            self.accounting = list(ACCOUNTING_QUERIES)
        return notices

    def has_looked_last(self, now: float) -> bool:
        """Return whether all has answered since, or has had its time."""
        waiting = self.looks or self.sampler or self.accounting
        return not waiting or now - (self.last_look or now) >= LAST_LOOK_PATIENCE

    def look(self, now: float) -> list[Notice]:
        """Look into each mount that the plan names, in a child process: a dead mount may block it forever."""
        self.looks_due = now + LOOK_INTERVAL
        notices = []
        there = mount_points() if self.plan.get("mounts") else set()
        for point in self.plan.get("mounts", ()):
            if point not in there:
                notices += self.note_mount(point, "nothing is mounted there any more")
            elif point not in self.looks:
                pid = run_quietly([sys.executable, "-I", "-S", "-c", LOOK, point], os.devnull)
                if pid:
                    self.looks[point] = (pid, now)
        return notices

    def tend_mounts(self, now: float, ended: dict[int, int], running: bool) -> list[Notice]:
        """Tell of mounts that die during the run, and of those that come back."""
        notices = self.look(now) if running and now >= self.looks_due else []
        for point, (pid, since) in list(self.looks.items()):
            error = None
            if pid in ended:
                del self.looks[point]
                code = exit_code(ended[pid])
                if code >= 0 and code != 1:  # 1: Python itself could not start
                    error = os.strerror(code) if code else ""
            elif now - since > LOOK_PATIENCE or (
                self.last_look is not None and now - self.last_look > LAST_LOOK_PATIENCE
            ):
                error = f"no answer within {now - since:.0f} s"
                signal_all([pid], signal.SIGKILL)
            if error is not None:
                notices += self.note_mount(point, error)
        return notices

    def note_mount(self, point: str, error: str) -> list[Notice]:
        """Tell that a mount has died (error) or come back (no error), once."""
        if bool(error) == (point in self.mounts):
            return []
        if error:
            self.mounts[point] = error
            return [("mount", f"the mount {point} on {self.name} has died: {error}")]
        del self.mounts[point]
        return [("mount", f"the mount {point} on {self.name} answers again")]

    def sample_gpus(self, now: float, ended: dict[int, int], running: bool) -> list[Notice]:
        """Have what the GPUs do written down while the job runs, by one process at a time: it may never answer."""
        notices = []
        if self.sampler in ended:
            code = exit_code(ended[self.sampler])
            asked, self.sampler = self.sampler, None
            if asked == self.picture:
                self.picture = 0  # another process may have its number
            elif asked == self.accountant:
                self.accountant = 0
                self.heed_account()
            else:
                if code >= 0:
                    notices = self.heed_sample(code)
                if self.accountant is None:
                    self.accounting = list(ACCOUNTING_QUERIES[:1])
        if self.last_look is not None and self.sampler and now - self.last_look > LAST_LOOK_PATIENCE:
            signal_all([self.sampler], signal.SIGKILL)
        elif self.accounting and not self.sampler and (running or self.last_look is not None):
            self.ask_for_account()
        elif running and not self.sampler and now >= self.samples_due:
            if self.samples >= PICTURE_AT and self.picture is None:
                path = self.journal.path("nvidia-smi.txt")
                self.picture = self.sampler = run_quietly(self.plan["gpu_samples"][:1], path)
            else:
                self.take_sample(now)
        return notices

    def take_sample(self, now: float) -> None:
        if self.plan.get("gpu_samples"):
            path = self.journal.path("gpus.csv")
            self.samples += 1
            self.samples_due = now + self.plan["timeouts"]["sample"]
            self.sample_start = os.path.getsize(path) if os.path.exists(path) else 0
            self.sampler = run_quietly(self.plan["gpu_samples"], path)

    def ask_for_account(self) -> None:
        """Make nvidia-smi write what the next query says about processes."""
        command = [self.plan["gpu_samples"][0], self.accounting.pop(0), "--format=csv,noheader,nounits"]
        self.accountant = self.sampler = run_quietly(command, self.journal.path(ACCOUNTING_FILE))

    def heed_account(self) -> None:
        """Where the driver turns out to keep account, ask what it has of earlier jobs, so that it can be taken off."""
        if not self.accounts and self.last_look is None:
            path = self.journal.path(ACCOUNTING_FILE)
            with self.journal.however_full_the_disk(), open(path, "rb", opener=regular) as stream:
                self.accounts = ACCOUNTING_ON.encode() in stream.read(TAIL_BYTES)
            self.accounting = list(ACCOUNTING_QUERIES[1:]) if self.accounts else []

    def heed_sample(self, code: int) -> list[Notice]:
        """Tell what a sample shows beside its figures; code: how nvidia-smi ended."""
        with self.journal.however_full_the_disk(), open(self.journal.path("gpus.csv"), "rb", opener=regular) as stream:
            stream.seek(self.sample_start)
            sample = stream.read(TAIL_BYTES).decode("utf-8", "replace")
            gpus, error = read_sample(sample, code, self.gpus)
            self.gpus = self.gpus or gpus
            if gpus or error:
                return self.note_gpus(error)
        return []

    def note_gpus(self, error: str) -> list[Notice]:
        """Tell that the GPUs have begun to fail (error) or are well again (no error), once."""
        if bool(error) == bool(self.gpus_error):
            return []
        self.gpus_error = error
        text = f"are failing: {error}" if error else "work again"
        return [("gpus", f"the GPUs on {self.name} {text}")]

    def tend_logs(self, now: float) -> list[Notice]:
        """Keep the logs within their limit while the job runs, and say so once."""
        limit = self.plan.get("log_limit", 0)
        if not limit or now < self.logs_due:
            return []
        self.logs_due = now + LOG_INTERVAL
        try:
            done = bound_logs(all_logs(self.plan, self.journal.directory), limit)
            told = f"the middle of {done[0]}{' and others' if done[1:] else ''} was removed" if done else ""
        except OSError as error:
            told = f"its file system cannot remove the middle of {error.filename}: {error.strerror}"
        if not told or self.shortened:
            return []
        self.shortened = f"the logs on {self.name} took more than {limit / 1e9:g} GB (launch_log_limit): {told}"
        if self.journal.state == "running":
            self.journal.set_state("running", self.shortened)
        return [("logs", self.shortened)]
