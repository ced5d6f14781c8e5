# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write this node's metrics to a file for node_exporter during a run; see launch_node_exporter_directory."""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import write_atomically
from ansible_collections.muster.training.plugins.module_utils._run.metrics_format import node_samples, render
from ansible_collections.muster.training.plugins.module_utils._supervisor.live_sampling import take_sample

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan
    from ansible_collections.muster.training.plugins.module_utils._run.metrics_format import Sample
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

    Notice = Tuple[str, str]  # kind (as on the lifeline) and text of a message

READABLE = 0o644  # node_exporter runs as a different user


def file_name(plan: Plan) -> str:
    """Return the file name for a node in a run, because several runs, and the nodes in a test, share a directory."""
    return f"muster-{plan['run_id']}-{plan['node']['node_rank']}.prom"


def price_of(plan: Plan) -> float | None:
    """Return the hourly price of this node in US dollars, or None if it is unknown."""
    if plan.get("currency", "USD") != "USD":
        return None
    prices = [node.get("price_per_hour") for node in plan["nodes"] if node["name"] == plan["node"]["name"]]
    return float(prices[0]) if prices and isinstance(prices[0], (int, float)) else None


def count_states(nodes: list[Data]) -> list[Sample]:
    """Return how many of the run's nodes are in each state."""
    states = [str(node.get("state", "")) for node in nodes]
    return [("muster_run_nodes", {"state": state}, float(states.count(state))) for state in sorted(set(states))]


class MetricsFile:
    """The metrics of a node. A directory that is not writable is reported once, and never delays or fails a run."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        directory = plan.get("node_exporter_directory") or ""
        self.path = os.path.join(directory, file_name(plan)) if directory else ""
        self.interval = plan["timeouts"]["sample"]
        self.started = time.monotonic()
        self.due = 0.0
        self.failed = False

    def step(self, now: float, running: bool, status: Data) -> list[Notice]:
        """Write the file if it is due; return a notice once if that fails. status: as in status.json."""
        if not self.path or now < self.due:
            return []
        self.due = now + self.interval
        try:
            write_atomically(self.path, self.text(running, status), READABLE)
        except OSError as error:
            if self.failed:
                return []
            self.failed = True
            text = f"no metrics for {self.plan['node']['name']}: {self.path}: {error.strerror}"
            return [("metrics", f"{text}; make the directory writable for the job's user")]
        self.failed = False
        return []

    def text(self, running: bool, status: Data) -> str:
        """Return the content of the file."""
        price = price_of(self.plan)
        samples = [
            *node_samples(take_sample(self.journal.directory)),
            ("muster_job_running", {}, float(running)),
            ("muster_job_duration_seconds_total", {}, time.monotonic() - self.started),
            ("muster_job_attempt", {}, float(status.get("attempt") or 0)),
            ("muster_node_health_problems", {}, float(len(status.get("health") or []))),
            *([] if price is None else [("muster_job_price_dollars_per_hour", {}, price)]),
            *([] if status.get("quiet") is None else [("muster_run_silent_seconds", {}, float(status["quiet"]))]),
            *count_states(status.get("nodes") or []),
        ]
        labels = {"muster_run_name": self.plan["run_id"], "Hostname": self.plan["node"]["name"]}
        return render(samples, labels)

    def close(self) -> None:
        """Remove the file, so that the series end with the run."""
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
