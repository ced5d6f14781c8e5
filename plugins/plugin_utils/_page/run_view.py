# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's view of a run, from its record and its nodes' replies. Its size does not grow with the run's duration.

Nodes are trusted no more than their job: each field of a reply is checked, and each list is bounded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import validate_hang
from ansible_collections.muster.training.plugins.module_utils._run.live_samples import STORED_SAMPLE
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    NAME,
    NODE_STATES,
    RANK,
    RUN_STATES,
    TIME,
    Between,
    Maybe,
    conforms,
    validate_result,
)
from ansible_collections.muster.training.plugins.plugin_utils._page.job_metrics import JobMetrics
from ansible_collections.muster.training.plugins.plugin_utils._page.node_samples import NodeSamples
from ansible_collections.muster.training.plugins.plugin_utils._page.output_tail import OutputTail
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import format_amount, run_cost, total_price
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
    to_timestamp,
)

MAX_EVENTS = 500
MAX_PROBLEMS = 100
MAX_NODES = 1024
HEALTH_KINDS = ("health", "broken")  # kinds of events that report a problem with a node
HEALTHY = "healthy"  # kind of event that reports the end of such a problem
NO_LONGER = "no longer the case: "
OUTPUT_NEWS = {
    "active": bool,
    "outputs": dict,
    "left_out": dict,
    "unfinished": str,
    "cursors": dict,
}
NEWS = {
    **OUTPUT_NEWS,
    "status": {
        "state": (*RUN_STATES, "died"),
        "message": Maybe(str),
        "started": Maybe(TIME),
        "updated": Maybe(TIME),
        "nodes": Maybe([{"name": NAME, "state": NODE_STATES, "since": TIME}]),
        "attempt": Maybe(range(1000)),
        "hub": Maybe(RANK),
        "exited": Maybe(str),
        "lost": Maybe(str),
    },
    "seconds_since_output": Maybe(Between(0, 1e11)),
    "events": [{"text": str}],
    "result": Maybe(dict),
    "samples": list,
    "sample_cursor": [int],
}


def has_texts(reply: Mapping[str, Any]) -> bool:
    """Return whether a reply maps paths to texts, and its skipped sizes are numbers."""
    return all(isinstance(text, str) for text in reply["outputs"].values()) and all(
        conforms(size, Between(0, 1e18)) for size in reply["left_out"].values()
    )


def is_output_news(reply: Any) -> bool:
    """Return whether a reply with a rank's output is valid."""
    return conforms(reply, OUTPUT_NEWS) and has_texts(reply)


def is_news(reply: Any) -> bool:
    """Return whether a reply with updates on a run is valid."""
    return conforms(reply, NEWS) and has_texts(reply) and len(reply["sample_cursor"]) == 3


def planned_nodes(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes in a plan: name, first rank and number of ranks."""
    return [
        {
            "name": clean_text(node.get("name"), 255),
            "first_rank": to_int(node.get("first_rank")),
            "slots": to_int(node.get("slots"), 10_000),
        }
        for node in to_mappings(plan.get("nodes"), MAX_NODES)
    ]


class RunView:
    """A run as shown on its page."""

    def __init__(self, run_id: str, plan: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> None:
        self.run_id = run_id
        self.plan = plan
        self.nodes = planned_nodes(plan)
        self.status: dict[str, Any] = {}
        self.result = to_mapping(result)
        self.active = not self.result
        self.connection = {"node": "", "state": "connecting", "text": ""}
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.event_count = 0
        self.problems: dict[str, None] = {}  # node problems, in the order in which they were reported
        self.silence: float | None = None
        self.lock = threading.RLock()  # the feed writes, and each browser request reads in its own thread
        self.output = OutputTail()
        self.metrics = JobMetrics()
        self.samples = NodeSamples([node["name"] for node in self.nodes])

    def take_plan(self, plan: Mapping[str, Any]) -> None:
        """Process the run's plan again, since a node may have been replaced."""
        nodes = planned_nodes(plan)
        if len(nodes) == len(self.nodes):
            with self.lock:
                self.plan, self.nodes = plan, nodes
                self.samples.names = [node["name"] for node in nodes]

    def take(self, reply: Mapping[str, Any]) -> None:
        """Process updates from the node that leads the run. is_news() must have accepted them."""
        with self.lock:
            self.take_news(reply)

    def take_news(self, reply: Mapping[str, Any]) -> None:
        """Process each part of the updates."""
        has_events = self.event_count > 0  # otherwise, events that a successor inherited would count as new
        self.status = dict(reply["status"])
        self.active = reply["active"]
        self.silence = reply["seconds_since_output"]
        result = validate_result(reply["result"])
        if result is not None:
            self.result = result
        for event in reply["events"]:
            if not (has_events and event.get("replicated")):
                self.add_event(event)
        for sample in reply["samples"]:
            if conforms(sample, STORED_SAMPLE):
                self.samples.add(sample)
        self.output.take(reply, keep=lambda line: not self.metrics.feed(line.rstrip("\r").rpartition("\r")[2]))

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event, and note or clear the node problem that it reports."""
        text, kind = clean_text(event["text"], 1000), clean_text(event.get("event"), 40)
        self.event_count += 1
        moment = to_timestamp(event.get("time"))
        self.events.append({"number": self.event_count, "time": moment, "kind": kind, "text": text})
        if kind in HEALTH_KINDS and len(self.problems) < MAX_PROBLEMS:
            self.problems[text] = None
        elif kind == HEALTHY:
            self.problems.pop(text.replace(NO_LONGER, "", 1), None)

    # - what the page shows

    def snapshot(self, after_event: int, now: float | None = None) -> dict[str, Any]:
        """Return the state of the run, with the events starting at a number. now: seconds since 1970."""
        with self.lock:
            return self.describe(after_event, time.time() if now is None else now)

    def describe(self, after_event: int, now: float) -> dict[str, Any]:
        """Return the result of snapshot(); the caller must hold the lock."""
        started = to_timestamp(self.status.get("started")) or to_timestamp(self.result.get("started"))
        ended = to_timestamp(self.result.get("ended"))
        state = self.result.get("state") or self.status.get("state") or "unknown"
        return {
            "run_id": self.run_id,
            "job": describe_job(self.plan),
            "state": clean_text(state, 40),
            "message": clean_text(self.result.get("reason") or self.status.get("message"), 1000),
            "active": self.active and not self.result,
            "attempt": to_int(self.status.get("attempt"), 1000),
            "lost": clean_text(self.status.get("lost"), 200),
            "started": started,
            "ended": ended,
            "seconds": None if started is None else max(0.0, (ended or now) - started),
            "seconds_since_output": self.silence if self.active else None,
            "cost": describe_cost(self.plan, started, ended or now),
            "connection": self.connection,
            "nodes": self.node_rows(),
            "events": [event for event in self.events if event["number"] > after_event],
            "last_event": self.event_count,
            "findings": self.findings(),
            "metrics": [{name: curve[name] for name in ("name", "last", "step")} for curve in self.metrics.curves()],
            "version": f"{self.metrics.number}-{self.samples.number}",
        }

    def node_rows(self) -> list[dict[str, Any]]:
        """Return the nodes with their states and newest samples."""
        views = {node["name"]: node for node in to_mappings(self.status.get("nodes") or self.result.get("nodes"))}
        rows = []
        for node in self.nodes:
            view = to_mapping(views.get(node["name"]))
            newest = self.samples.newest.get(node["name"], {})
            first, last = node["first_rank"], node["first_rank"] + node["slots"] - 1
            rows.append(
                {
                    **node,
                    "ranks": "" if not node["slots"] else f"{first}" if first == last else f"{first}-{last}",
                    "state": clean_text(view.get("state"), 40) or "unknown",
                    "since": to_timestamp(view.get("since")),
                    **{name: None if value is None else round(value, 1) for name, value in newest.items()},
                }
            )
        return rows

    def findings(self) -> list[dict[str, str]]:
        """Return the current problems with the run and its nodes."""
        findings = []
        hang = validate_hang(self.status.get("hang")) if self.active else None
        if hang is not None:
            findings.append({"kind": "hang", "text": clean_text(hang["text"])})
        if self.active and self.status.get("exited"):
            findings.append({"kind": "exited", "text": clean_text(self.status["exited"])})
        texts = [*self.problems, *(to_list(self.status.get("slow"), MAX_PROBLEMS) if self.active else [])]
        findings += [{"kind": "health", "text": text} for text in map(clean_text, texts) if text]
        return findings

    def curves(self, node: str) -> dict[str, Any]:
        """Return the curves of the job, and those of the nodes or of the GPUs of one node."""
        with self.lock:
            return {
                "metrics": self.metrics.curves(),
                "strips": self.samples.strips(node),
                "start": self.samples.table.start,
                "width": self.samples.table.width,
                "version": f"{self.metrics.number}-{self.samples.number}",
            }

    def output_after(self, number: int) -> dict[str, Any]:
        """Return rank 0's latest lines, starting at a line number."""
        with self.lock:
            return self.output.after(number)


def describe_job(plan: Mapping[str, Any]) -> str:
    """Return the program of a run and its arguments."""
    tokens = [plan.get("program"), *to_list(plan.get("arguments"), 200)]
    return " ".join(text for text in (clean_text(token, 200) for token in tokens) if text)[:1000]


def describe_cost(plan: Mapping[str, Any], started: float | None, now: float) -> str:
    """Describe the cost of a run so far and per hour, or return "" if it is unknown."""
    nodes = {"nodes": to_mappings(plan.get("nodes"))}
    try:
        rate = total_price(node.get("price_per_hour") for node in nodes["nodes"])
        spent = run_cost(nodes, started, now)
    except TypeError:  # the record is damaged
        return ""
    currency = clean_text(plan.get("currency"), 10) or "USD"
    return f"{format_amount(spent, currency)}, {format_amount(rate, currency)} an hour" if spent and rate else ""
