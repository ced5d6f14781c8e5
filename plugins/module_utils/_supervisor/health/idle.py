# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find nodes whose ranks are idle while those on other nodes are working, and what they cost.

Each node measures the CPU time of its job; rank 0 compares the nodes.
"""

from __future__ import annotations

import collections
import os

from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PACE_WINDOW
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.container_cpu import (
    TICKS,
    ContainerCpu,
    cpu_ticks,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping, Sequence

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

IDLE = "idle"  # kind of the event
# cores below which a rank is considered not to be using the CPU; threads that wait for others use less
IDLE_CORES = 0.05
IDLE_PERCENT = 5.0  # utilization up to which each GPU is considered idle
WORKING_CORES = 0.5  # cores used by all ranks of a node at or above which the node is considered to be working
WORKING_PERCENT = 20.0  # utilization of any GPU at or above which the node is considered to be working
# age of a node's last sample, in sample intervals, beyond which its state is considered unknown
CURRENT_INTERVALS = 3.0
MAX_NAMES = 6  # number of node names in a text

WORKING, BETWEEN, UNKNOWN = "working", "between", "unknown"

# What a node is doing, and the monotonic times at which this began and at which its last sample arrived.
Activity = collections.namedtuple("Activity", "state since sampled")


class JobCpu:
    """Measures how many CPU cores the job of this node uses."""

    def __init__(self, directory: str = "") -> None:
        self.directory = directory  # the run directory
        self.container = ContainerCpu()
        self.ticks: dict[object, int] = {}  # CPU time by pid, or by cgroup
        self.read_at: float | None = None

    def cores(self, now: float, plan: Plan) -> float | None:
        """Return the mean number of cores in use since the last call, or None if that is unknown."""
        before, self.ticks = self.ticks, self.read_ticks(plan)
        read_at, self.read_at = self.read_at, now
        if read_at is None or now <= read_at or (plan.get("wrap") and not self.ticks):
            return None
        used = sum(max(0, ticks - before.get(key, 0)) for key, ticks in self.ticks.items())
        return round(used / TICKS / (now - read_at), 3)

    def read_ticks(self, plan: Plan) -> dict[object, int]:
        if plan.get("wrap"):  # a container's processes are the engine's children
            return self.container.ticks(self.directory)
        return {pid: cpu_ticks(pid) for pid in descendants(os.getpid())}


def activity_of(sample: Mapping[str, Any], ranks: int, has_gpus: bool) -> str:
    """Return what a node's ranks are doing, from its sample. has_gpus: whether an earlier sample had GPUs."""
    cores = sample.get("job_cores")
    gpus = [gpu.get("utilization_percent") for gpu in sample["gpus"]]
    if any(percent is not None and percent >= WORKING_PERCENT for percent in gpus):
        return WORKING
    if cores is None or None in gpus or (has_gpus and not gpus):
        return UNKNOWN
    if cores >= WORKING_CORES:
        return WORKING
    return IDLE if cores <= IDLE_CORES * ranks and all(percent <= IDLE_PERCENT for percent in gpus) else BETWEEN


def join_names(names: Sequence[str]) -> str:
    """Join names as a person would write them, such as "gpu0, gpu1 and 3 more"."""
    more = len(names) - MAX_NAMES
    if more > 1:
        return f"{', '.join(names[:MAX_NAMES])} and {more} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def describe_idle(names: Sequence[str], seconds: float, price: float | None, currency: str) -> str:
    """Return a text about idle nodes. price: the hourly price of all of them, or None if unknown."""
    several = len(names) > 1
    verb, whose, pronoun = ("are", "their", "they cost") if several else ("is", "its", "it costs")
    cost = f"; {pronoun} {price:.2f} {currency}".rstrip() + " an hour" if price else ""
    return (
        f"{join_names(names)} {verb} idle: {whose} ranks have used neither CPU nor GPU for "
        f"{format_seconds(seconds)}, while others are working{cost}"
    )


class IdleWatch:
    """Tracks what each node in an attempt is doing, and which nodes are idle."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.nodes = {node["name"]: node for node in plan["nodes"]}
        self.currency = str(plan.get("currency") or "")
        self.interval = float(plan["timeouts"]["sample"])
        self.is_enabled = not plan.get("debugger")  # in that case all ranks are waiting for a person
        self.activities: dict[str, Activity] = {}
        self.with_gpus: set[str] = set()
        self.idle: list[str] = []  # nodes for which an event has been written
        self.due = 0.0

    def take(self, name: str, sample: Mapping[str, Any], now: float) -> None:
        """Take a checked sample from a node, which describes the time since the previous one."""
        if name not in self.nodes:
            return
        if sample["gpus"]:
            self.with_gpus.add(name)
        state = activity_of(sample, self.nodes[name].get("slots") or 1, name in self.with_gpus)
        before = self.activities.get(name, Activity(state, now, now))
        since = before.since if before.state == state else before.sampled
        self.activities[name] = Activity(state, since, now)

    def news(self, now: float) -> list[str]:
        """Return texts about nodes that have become idle or are working again; at most once per sample interval."""
        if now < self.due or not self.is_enabled:
            return []
        self.due = now + self.interval
        current = {
            name: activity
            for name, activity in self.activities.items()
            if now - activity.sampled <= CURRENT_INTERVALS * self.interval
        }
        others_work = any(activity.state == WORKING for activity in current.values())
        idle = [
            name
            for name, activity in current.items()
            if activity.state == IDLE and activity.sampled - activity.since >= PACE_WINDOW
        ]
        new = [name for name in idle if name not in self.idle] if others_work else []
        again = [name for name in self.idle if name in current and current[name].state == WORKING]
        self.idle = [name for name in self.idle if name in idle] + new
        texts = [self.describe(new)] if new else []
        return texts + ([f"{join_names(again)} {'work' if len(again) > 1 else 'works'} again"] if again else [])

    def describe(self, names: Sequence[str]) -> str:
        """Return a text about idle nodes."""
        prices = [self.nodes[name].get("price_per_hour") for name in names]
        is_known = all(isinstance(price, (int, float)) for price in prices)
        return describe_idle(names, PACE_WINDOW, sum(prices) if is_known else None, self.currency)

    def texts(self) -> list[str]:
        """Return texts about the nodes that are currently idle."""
        return [self.describe(self.idle)] if self.idle else []
