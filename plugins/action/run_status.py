# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module run_status: shows the nodes' statuses as one table. Connects to no node."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import (
    describe_ended_ranks,
    format_ranks,
)
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import validate_hang
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    GPU_SILENCE_TIMEOUT,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import classify_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import format_silence
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, format_result, run_query
from ansible_collections.muster.training.plugins.plugin_utils._page.job_metrics import JobMetrics
from ansible_collections.muster.training.plugins.plugin_utils._record.node_replies import is_run_status
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable, visible_text
from ansible_collections.muster.training.plugins.plugin_utils._text.sparkline import sparkline

MAX_METRICS = 4
TREND_PARTS = 12  # number of values in a metric's sparkline
ARGUMENT_SPEC = {
    "run_id": {"type": "str", "default": ""},
    "results_by_node": {"type": "dict", "required": True},
    "json_file": {"type": "path", "default": ""},
    "jmespath": {"type": "str", "default": ""},
}


def node_status(name: str, reply: Any) -> dict[str, Any]:
    """Return one node's row: training_run's reply, or the reason why it is missing."""
    unknown: dict[str, Any] = {
        "node": name,
        "ranks": [],
        "since": None,
        "message": "",
        "last_line": "",
        "seconds_since_output": None,
        "gpus": None,
        "ended_ranks": {},
        "hang": None,
        "health": [],
    }
    if not isinstance(reply, Mapping):
        return {**unknown, "state": "not read", "message": "not queried"}
    if reply.get("skipped"):  # stop.yml has already tried
        return {**unknown, "state": "unreachable", "message": "did not respond a moment ago"}
    if reply.get("unreachable") or reply.get("node_unreachable"):
        return {**unknown, "state": "unreachable", "message": classify_failure(name, str(reply.get("msg", ""))).problem}
    if reply.get("failed"):
        return {**unknown, "state": "not read", "message": str(reply.get("msg", ""))}
    run = reply.get("run")
    if run is None:
        return {**unknown, "state": "no run"}
    if not is_run_status(run):
        message = f"{name} sent an invalid reply: check there whether a job has changed Python or the run's files"
        return {**unknown, "state": "not read", "message": message}
    keys = (*unknown, "node_rank", "state", "run_id", "directory")
    fields = {"job": run.get("job", ""), "hang": validate_hang(run.get("hang")), "attempt": run.get("attempt") or 0}
    fields["lost"] = printable(str(run.get("lost") or ""))[:200]
    fields["missing"] = run.get("missing") or []
    fields["metrics"] = read_metrics(run.get("tail"))
    return {**{key: run.get(key) for key in keys}, **fields}


def read_metrics(tail: Any) -> list[dict[str, Any]]:
    """Return the metrics at the end of rank 0's output: name, last value, last step and recent values."""
    metrics = JobMetrics()
    for line in tail.splitlines() if isinstance(tail, str) else ():
        metrics.feed(line.rpartition("\r")[2])
    curves = metrics.curves()[:MAX_METRICS]
    return [
        {**{name: curve[name] for name in ("name", "last", "step")}, "recent": recent_values(curve["points"])}
        for curve in curves
    ]


def recent_values(points: list[list[float]]) -> list[float]:
    """Divide a curve into at most TREND_PARTS equal parts and return the mean of each."""
    count = min(TREND_PARTS, len(points))
    parts = [points[len(points) * part // count : len(points) * (part + 1) // count] for part in range(count)]
    return [sum(point[2] for point in part) / len(part) for part in parts]


def format_metrics(metrics: list[dict[str, Any]]) -> str:
    """Return the metrics as "loss 0.31 ▇▅▃▁", or "" if there are none."""
    texts = []
    for metric in metrics:
        values = metric["recent"]
        if metric["last"] is not None and values:
            trend = sparkline(values, min(values), max(values))
            texts.append(f"{printable(metric['name'])} {metric['last']:.5g} {trend}".rstrip())
    return ", ".join(texts)


def write_json(file: str, status: Any) -> None:
    """Write a status or query result for use by programs. Raise AnsibleActionFail if the file cannot be written."""
    try:
        Path(file).write_text(json.dumps(status, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise AnsibleActionFail(
            f"cannot write {file}: {error.strerror}; name a writable file with -e json=FILE"
        ) from error


def format_gpus(gpus: Mapping[str, Any] | None) -> str:
    """Format the load of a node's GPUs, such as "▆▇█ 91-99 %, 71 of 80 GiB"; the memory is that of the fullest GPU."""
    if gpus is None:
        return ""
    if gpus["age"] > GPU_SILENCE_TIMEOUT:
        return f"no reply for {format_duration(gpus['age'])}"
    busy = sorted({gpu.get("utilization_percent") for gpu in gpus["devices"]} - {None})
    trend = sparkline(gpus.get("trend"))
    busy_range = f"{busy[0]:.0f} %" if len(busy) == 1 else f"{busy[0]:.0f}-{busy[-1]:.0f} %" if busy else ""
    parts = [f"{trend} {busy_range}".strip()] if busy else []
    memory = [(gpu.get("memory_used_mib"), gpu.get("memory_total_mib")) for gpu in gpus["devices"]]
    known_memory = [(used, total) for used, total in memory if used is not None and total is not None]
    if known_memory:
        used, total = max(known_memory)
        parts.append(f"{used / 1024:.0f} of {total / 1024:.0f} GiB")
    return ", ".join(parts)


def render_status(nodes: list[dict[str, Any]], now: float) -> str:
    """Return the table: node, ranks, state, since, gpus if there are any, last line."""
    rows: list[tuple[str, ...]] = [("node", "ranks", "state", "since", "gpus", "last line")]
    awaited_ranks = {rank for node in nodes if node.get("hang") for rank in node["hang"]["awaited_ranks"]}
    for node in nodes:
        ranks = node["ranks"]
        rank_range = "" if not ranks else str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
        # a node's clock may be ahead of ours
        since = "" if node["since"] is None else format_duration(max(0.0, now - node["since"]))
        exited = sorted(int(rank) for rank in node["ended_ranks"])
        ended = f"{format_ranks(exited)} exited with code 0;" if exited else ""
        awaited = sorted(awaited_ranks & set(ranks))
        ended += f" the other ranks are waiting for {format_ranks(awaited)};" if awaited else ""
        output = (
            f"{ended}{format_silence(node['seconds_since_output'])} {visible_text(node['last_line'])[:120]}".strip()
        )
        last_line = printable(node["message"] or output)
        rows.append((node["node"], rank_range, node["state"], since, format_gpus(node["gpus"]), last_line))
    if not any(row[4] for row in rows[1:]):
        rows = [(*row[:4], row[5]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows)


def describe_exited_ranks(nodes: list[dict[str, Any]]) -> str:
    """Return a message about ranks that have exited while others are still running, or an empty string if there are
    none.
    """
    active = [node for node in nodes if node["state"] == "running" and node["ranks"]]
    ages = {int(rank): age for node in active for rank, age in node["ended_ranks"].items()}
    spans = [{"name": node["node"], "first_rank": node["ranks"][0], "slots": len(node["ranks"])} for node in active]
    return describe_ended_ranks(ages, spans)


class ActionModule(ActionBase):
    """Action plugin that writes only the requested file."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the status of a run and return it."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        nodes = [node_status(name, reply) for name, reply in args["results_by_node"].items()]
        nodes.sort(key=lambda node: (node.get("run_id", "~"), node.get("node_rank", 0)))
        run_ids = sorted({node["run_id"] for node in nodes if node.get("run_id")})
        status = {"run_ids": run_ids, "nodes": nodes}
        if args["jmespath"]:
            self._show_query_result(args["jmespath"], status, args["json_file"])
            return {"changed": False, **status}
        if run_ids:
            jobs = [printable(str(node["job"]))[:300] for node in nodes if node.get("job")]
            newest = max(node.get("attempt", 0) for node in nodes)
            lost = next((node["lost"] for node in nodes if node.get("lost")), "")
            attempt = f", attempt {newest}" + (f" ({lost} lost so far)" if lost else "") if newest else ""
            Display().display(": ".join([f"run {', '.join(run_ids)}{attempt}", *jobs[:1]]))
        elif nodes and all(node["state"] in ("unreachable", "not read") for node in nodes):
            Display().display("no node could be queried")
        elif args["run_id"]:
            Display().display(f"no node has a run {args['run_id']}")
        Display().display(render_status(nodes, time.time()))
        for text in filter(None, [format_metrics(node.get("metrics", [])) for node in nodes]):
            Display().display(text)
        exited = describe_exited_ranks(nodes)
        if exited:
            Display().display(exited)
        for node in nodes:
            for text in node["health"] or []:
                Display().display(printable(f"{node['node']}: {text}"))
            if node["hang"]:
                since = format_duration(max(0.0, time.time() - (node["hang"]["since"] or time.time())))
                Display().display(f"no output for {since}: {printable(node['hang']['text'])}")
        if args["json_file"]:
            write_json(args["json_file"], status)
        return {"changed": False, **status}

    @staticmethod
    def _show_query_result(query: str, status: dict[str, Any], file: str) -> None:
        try:
            result = run_query(query, status)
        except QueryError as error:
            raise AnsibleActionFail(str(error)) from None
        Display().display(format_result(result))
        if file:
            write_json(file, result)
