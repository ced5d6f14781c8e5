# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module choose_runs: shows all runs and selects old ones. Connects to no node."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, format_result, run_query
from ansible_collections.muster.training.plugins.plugin_utils._record.node_replies import is_run_list
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC = {
    "results_by_node": {"type": "dict", "required": True},
    "keep": {"type": "str", "default": ""},
    "older_than": {"type": "str", "default": ""},
    "grep": {"type": "str", "default": ""},
    "jmespath": {"type": "str", "default": ""},
}
MAX_JOB, MAX_OUTCOME = 60, 80  # maximum number of characters in the table
SUMMARY = ("job", "project", "outcome")
SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_age(text: str) -> float:
    """Parse an age such as 30d, 12h, 90m or 2w, and return it in seconds. Raise AnsibleActionFail if it is invalid."""
    match = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if match is None:
        raise AnsibleActionFail(
            f"older_than is {ascii(text)[:40]}: use a number with a unit (m, h, d or w), such as -e older_than=30d"
        )
    return float(match[1]) * SECONDS[match[2]]


def parse_count(text: str) -> int:
    """Return the number of runs to keep. Raise AnsibleActionFail if it is not a number."""
    if not re.fullmatch(r"\d{1,6}", text):
        raise AnsibleActionFail(
            f"keep is {ascii(text)[:40]}: set the number of newest runs to keep, such as -e keep=20"
        )
    return int(text)


def listed_runs(reply: Any) -> list[dict[str, Any]] | None:
    """Return the runs in a node's reply, or None if the node did not respond or the reply is invalid."""
    runs = reply.get("runs") if isinstance(reply, Mapping) else None
    return runs if is_run_list(runs) else None


def merge_runs(results_by_node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each run once, newest first, with its nodes, its total size on them and its result.

    If nodes disagree, the values that favor keeping a run win: the latest start, and every node that any of them names.
    """
    runs: dict[str, dict[str, Any]] = {}
    for name, reply in results_by_node.items():
        for node_run in listed_runs(reply) or ():
            run = runs.setdefault(
                node_run["run_id"], {"run_id": node_run["run_id"], "nodes": [], "stored_on": [], "states": {}}
            )
            run["nodes"] += [node for node in node_run["nodes"] if node not in run["nodes"]]
            run["stored_on"].append(name)
            run["states"][name] = node_run["state"]
            for key in SUMMARY:
                run[key] = run.get(key) or node_run.get(key) or ""
            run["alive"] = run.get("alive", False) or node_run["alive"]
            run["started"] = max(run.get("started", 0.0), node_run["started"])
            run["size"] = run.get("size", 0) + node_run["size"]
    for run in runs.values():
        states = run.pop("states")  # the first node's state is decisive, since it knows the run's result
        state = next(states[name] for name in [*run["nodes"], *states] if name in states)
        run["state"] = "running" if run["alive"] else state
    return sorted(runs.values(), key=lambda run: run["started"], reverse=True)


def old_runs(runs: list[dict[str, Any]], keep: str, older_than: str, replied: set[str], now: float) -> list[str]:
    """Return the ids of runs to remove: beyond the newest `keep`, and older than `older_than`, if both are set.

    A run is never returned if it is active, or may be active on a node that is not in `replied`.
    """
    if not keep and not older_than:
        return []
    keep_count = parse_count(keep) if keep else 0
    min_age = parse_age(older_than) if older_than else 0.0
    candidates = [run for run in runs[keep_count:] if now - run["started"] >= min_age]
    return [run["run_id"] for run in candidates if not run["alive"] and set(run["nodes"]) <= replied]


def matching_runs(runs: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Return the runs whose name, job, directory or outcome contains a text, ignoring case."""
    return [run for run in runs if any(text.lower() in run[key].lower() for key in ("run_id", *SUMMARY))]


def shorten(text: str, limit: int) -> str:
    """Return a text on one line, at most `limit` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def describe_job(run: Mapping[str, Any]) -> str:
    """Return a description of the job, and the name of the directory in which it started."""
    directory = run["project"].rstrip("/").rpartition("/")[2]
    return shorten(run["job"], MAX_JOB) + (f" in {shorten(directory, 30)}" if run["job"] and directory else "")


def render_table(runs: list[dict[str, Any]]) -> str:
    """Return the table of runs."""
    lines = [("RUN", "STATE", "STARTED", "SIZE", "NODES", "JOB", "OUTCOME")]
    for run in runs:
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run["started"]))
        size = f"{run['size'] / 1e6:.0f} MB"
        lines.append(
            (
                printable(run["run_id"]),
                printable(run["state"]),
                started,
                size,
                format_list(run["stored_on"]),
                describe_job(run),
                shorten(run["outcome"], MAX_OUTCOME),
            )
        )
    columns = [column for column in range(7) if column < 5 or any(line[column] for line in lines[1:])]
    rows = [[line[column] for column in columns] for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


class ActionModule(ActionBase):
    """Action plugin that only shows and selects runs."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the runs, and return the ids of old runs."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if args["grep"] and (args["keep"] or args["older_than"]):
            raise AnsibleActionFail(
                "grep only selects the runs to show, so it cannot be combined with keep or "
                "older_than: omit it to remove runs"
            )
        runs = merge_runs(args["results_by_node"])
        if args["grep"]:
            runs = matching_runs(runs, args["grep"])
        silent = {
            name
            for name, reply in args["results_by_node"].items()
            if not isinstance(reply, Mapping) or "runs" not in reply
        }
        replied = {name for name, reply in args["results_by_node"].items() if listed_runs(reply) is not None}
        invalid = set(args["results_by_node"]) - silent - replied
        old = old_runs(runs, args["keep"], args["older_than"], replied, time.time())
        display = Display()
        try:
            output = format_result(run_query(args["jmespath"], {"runs": runs, "old": old})) if args["jmespath"] else ""
        except QueryError as error:
            raise AnsibleActionFail(str(error)) from None
        none = (
            f"no run on these nodes contains the text {printable(args['grep'])}"
            if args["grep"]
            else "no runs on these nodes"
        )
        display.display(output or (render_table(runs) if runs else none))
        if silent:
            display.warning(f"{', '.join(sorted(silent))} did not respond: their runs are neither listed nor removed")
        if invalid:
            display.warning(
                f"{', '.join(sorted(invalid))} sent an invalid reply: their runs are neither listed nor removed; check "
                "there whether a job has changed Python or the run directories"
            )
        if old:
            size = sum(run["size"] for run in runs if run["run_id"] in old)
            display.display(
                f"to be removed, with everything in their directories: {', '.join(old)} ({size / 1e6:.0f} MB)"
            )
        return {"changed": False, "runs": runs, "old": old}
