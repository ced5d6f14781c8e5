# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a run is hanging, from the time since its last output and what its ranks are doing."""

from __future__ import annotations

import math
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size
from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import format_age
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    WAITING,
    describe,
    find_culprits,
    merge_groups,
    validate_groups,
)
from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import log_directory, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import CODE, STOPPED
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    HANG_CONFIRM_INTERVAL,
    HANG_GAP_FACTOR,
    LEAST_HANG_TIMEOUT,
    PROGRESS_CHECK_INTERVAL,
    STACKS_REPLY_TIMEOUT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping, Sequence

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan

# bytes that a job's processes must have written to files between two checks for this to count as progress
WRITTEN = 1_048_576
IO_CHECK_AGE = 10.0  # seconds of silence after which files being written are examined


def bytes_written(pids: list[int]) -> int:
    """Return how many bytes these processes have passed to write(), by the kernel's count."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb") as stream:
                total += next((int(line.split()[1]) for line in stream if line.startswith(b"wchar:")), 0)
        except (OSError, ValueError, IndexError):
            continue
    return total


class Progress:
    """Notices that the job on this node is making progress: a log grew, or its processes wrote a file."""

    def __init__(self, directory: str, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan
        self.due = 0.0
        self.changed: float | None = None  # monotonic time at which progress was last seen
        self.sizes: dict[str, int] = {}
        self.written: int | None = None

    def quiet(self, now: float) -> float:
        """Return the seconds since the last progress."""
        if now >= self.due:
            self.due = now + PROGRESS_CHECK_INTERVAL
            if self.changed is None or self.has_progressed(now):
                self.changed = now
        return now - (self.changed if self.changed is not None else now)

    def has_progressed(self, now: float) -> bool:
        """Return whether the job has written anything since the last check."""
        paths = {os.path.join(log_directory(self.plan, self.directory), "launcher.log")}
        for local_rank in range(self.plan["node"]["slots"]):
            paths.update(rank_logs(self.plan, self.directory, local_rank))
        sizes = {path: file_size(path) for path in paths}
        changed, self.sizes = sizes != self.sizes, sizes
        if changed or now - (self.changed or now) < IO_CHECK_AGE:
            self.written = None
            return changed
        before, self.written = self.written, bytes_written(descendants(os.getpid()))
        return before is not None and self.written - before >= WRITTEN


class HangRule:
    """The pure rule for how long a silence must last, based on the silences that the run has survived."""

    def __init__(self, timeout: float, least: float = LEAST_HANG_TIMEOUT) -> None:
        self.timeout = timeout  # 0: never
        self.least = min(least, timeout)  # the adapted threshold is never less than this
        self.longest_gap: float | None = None  # None until the first progress
        self.quiet = 0.0  # seconds of silence at the last call
        self.postponed = 0.0  # seconds of silence before which there is no need to evaluate the rule again

    def threshold(self) -> float:
        """Return how many seconds a silence must last before a run may be hanging."""
        if not self.timeout:
            return math.inf
        adapted = self.timeout
        if self.longest_gap is not None:
            adapted = max(self.least, HANG_GAP_FACTOR * self.longest_gap)
        return max(adapted, self.postponed)

    def note(self, quiet: float) -> bool:
        """Take the seconds since any rank made progress; return whether progress has been made since the last call."""
        progressed = quiet < self.quiet
        if progressed:
            self.longest_gap = max(self.longest_gap or 0.0, self.quiet)
            self.postponed = 0.0
        self.quiet = quiet
        return progressed

    def is_due(self, lead: float = 0.0) -> bool:
        """Return whether the silence is as long as the threshold, or will be in `lead` seconds, at most half of it."""
        threshold = self.threshold()
        return self.quiet > threshold - min(lead, threshold / 2)

    def postpone(self) -> None:
        """Evaluate the rule again after twice the current silence: the ranks are silent, but working."""
        self.postponed = 2 * self.quiet


def is_hang(earlier: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]], ended: Sequence[int]) -> bool:
    """Return whether two collections of stacks, a few seconds apart, show that no rank can continue.

    Ranks that wait for others must do so in the same call and line in both. Either they use no CPU time meanwhile, or,
    as a wait for a GPU uses some, all ranks must stay in their lines, and some of them be waited for or all GPUs be
    busy at low power. If no rank waits for others, no main thread may use CPU time, and all must stay where they are.
    groups: merged.
    """
    waiting = [group for group in later if group["kind"] in WAITING]
    before = positions(earlier)
    if not later or any(before.get(rank) != position(group) for group in waiting for rank in group["ranks"]):
        return False
    culprits = find_culprits(later, ended)
    if waiting:
        if all(group["cpu"] == "still" for group in waiting):
            return True
        lines = {rank: position(group)[:-1] for group in earlier for rank in group["ranks"]}
        same = all(lines.get(rank) == position(group)[:-1] for group in later for rank in group["ranks"])
        if same and all(group.get("gpu") for group in [*earlier, *later]):
            return True
        return same and bool(culprits) and culprits == find_culprits(earlier, ended)
    if any(group["kind"] == STOPPED for group in later):
        return True
    return all(
        group["kind"] == CODE and group["cpu"] == "still" and before.get(rank) == position(group)
        for group in later
        for rank in group["ranks"]
    )


def position(group: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values that must stay the same while a rank is waiting."""
    return group["kind"], group["call"], group["file"], group["line"], tuple(group["frames"])


def positions(groups: Sequence[Mapping[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """Return the position of each rank."""
    return {rank: position(group) for group in groups for rank in group["ranks"]}


class HangWatch:
    """Rank 0's search for hangs: asks all nodes for stacks twice if the run is silent, and describes what differs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        timeout = plan["timeouts"].get("hang", 0) if plan.get("stacks") else 0
        # ending a healthy run, such as one whose first rank is running an evaluation, would cost more than a late
        # report
        self.rule = HangRule(timeout, timeout if plan.get("on_hang") == "stop" else LEAST_HANG_TIMEOUT)
        self.quiets: dict[int, float] = {}  # seconds of silence as last reported, by node_rank
        self.progressed: dict[int, float] = {}  # monotonic time at which each node last made progress, by node_rank
        self.replies: dict[int, list[Data]] = {}  # groups by node_rank, from the collection in progress
        self.asked = 0.0  # monotonic time at which that collection began; 0.0 if none is in progress
        self.earlier: list[Data] | None = None  # the groups of the first collection
        self.next_due = 0.0
        self.hang: Data | None = None  # the hang that has been reported and has not ended
        self.resumed = 0.0  # monotonic time of the first output after the hang; 0.0 if there has been none
        self.news = ""  # a text to report once

    def note_quiet(self, node_rank: int, quiet: Any, now: float) -> None:
        """Take the seconds of silence on a node, as its supervisor sends them with each heartbeat."""
        if isinstance(quiet, (int, float)) and not isinstance(quiet, bool) and 0 <= quiet < 1e7:
            # otherwise the values differ only by the delays of two messages
            if quiet < self.quiets.get(node_rank, math.inf):
                self.progressed[node_rank] = now - quiet
            self.quiets[node_rank] = float(quiet)

    def take(self, node_rank: int, groups: Any) -> None:
        """Take a node's groups; its supervisor is trusted as little as its job."""
        node = self.plan["nodes"][node_rank]
        self.replies[node_rank] = validate_groups(groups, range(node["first_rank"], node["first_rank"] + node["slots"]))

    def step(self, now: float, running: Sequence[int], ended: Sequence[int]) -> bool:
        """Return whether all nodes should send their stacks now.

        Args:
            now: monotonic time.
            running: the nodes whose part runs, by node_rank.
            ended: ranks that have exited with 0.
        """
        progressed = [self.progressed[node_rank] for node_rank in running if node_rank in self.progressed]
        if not progressed or len(progressed) < len(running):
            return False
        if self.rule.note(max(0.0, now - max(progressed))):
            self.earlier, self.next_due = None, 0.0
            self.resumed = self.resumed or now
        if self.asked:
            if all(node_rank in self.replies for node_rank in running) or now - self.asked > STACKS_REPLY_TIMEOUT:
                self.asked = 0.0
                self.judge(now, merge_groups([group for groups in self.replies.values() for group in groups]), ended)
            return False
        if self.hang is not None and self.resumed and now - self.resumed > HANG_CONFIRM_INTERVAL:
            self.resumed, self.asked, self.replies = 0.0, now, {}
            return True
        lead = HANG_CONFIRM_INTERVAL if self.earlier is None else 0.0  # so that the second collection is on time
        if self.hang is not None or not self.rule.is_due(lead) or now < self.next_due:
            return False
        self.asked, self.replies = now, {}
        return True

    def judge_output(self, groups: list[Data]) -> None:
        """Forget a hang if the stacks a few seconds after the ranks' next output show progress.

        That output may be the error that ends them: NCCL's watchdog ends a rank up to a minute after printing it.
        """
        if self.hang is not None and positions(self.hang["groups"]) != positions(groups):
            self.hang = None
            self.news = f"the ranks are continuing after {format_age(self.rule.longest_gap or 0.0)} without output"

    def judge(self, now: float, groups: list[Data], ended: Sequence[int]) -> None:
        """Compare a collection with the previous one, and describe the hang if there is one."""
        if self.hang is not None:
            self.judge_output(groups)
            return
        if self.earlier is None:
            self.earlier, self.next_due = groups, now + HANG_CONFIRM_INTERVAL
            return
        earlier, self.earlier, self.next_due = self.earlier, None, 0.0
        if not is_hang(earlier, groups, ended):
            self.rule.postpone()
            return
        text, culprits = describe(groups, self.plan["nodes"], ended)
        self.news = f"no output for {format_age(self.rule.quiet)}: {text}"
        self.resumed = 0.0
        self.hang = {"text": text, "since": time.time() - self.rule.quiet, "awaited_ranks": culprits, "groups": groups}

    def add_evidence(self, text: str) -> None:
        """Add to the description of the hang that is about to be reported. text: a continuation, or empty."""
        if self.hang is not None:
            self.hang["text"] += text
            self.news += text

    def take_news(self) -> str:
        """Return the text to report, once."""
        news, self.news = self.news, ""
        return news
