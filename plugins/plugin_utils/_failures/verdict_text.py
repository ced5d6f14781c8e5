# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict of a run as text for a terminal."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.output_formats import TRACEBACK
from ansible_collections.muster.training.plugins.plugin_utils._failures.attempts import render_attempts
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation, clean_line
from ansible_collections.muster.training.plugins.plugin_utils._failures.node_output import MAX_LINE
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import format_amount
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

SHOWN_LINES = 20  # number of log lines shown with the verdict
# number of characters of an error on a single line: a failed compilation's error contains the whole command
MAX_ERROR = 300
MAX_REPORTED = 50  # number of values reported by a job that are shown, each truncated to MAX_ERROR characters
MAX_COMPLETE = 2000  # number of characters of an error that is shown with all of its lines


def brief_error(text: str) -> str:
    """Return an error as one readable line, truncated to MAX_ERROR characters."""
    line = clean_line(text[: 4 * MAX_ERROR])
    return line if len(line) <= MAX_ERROR and len(text) <= 4 * MAX_ERROR else f"{line[:MAX_ERROR].rstrip()} …"


def format_silence(seconds: float | None) -> str:
    """Return " no output for 4 min;" if a job has been silent for a minute or longer, otherwise an empty string."""
    return "" if seconds is None or seconds < 60 else f" no output for {seconds // 60:.0f} min;"


def format_reported(reported: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format the values reported by a job as names and values for a terminal."""
    pairs = []
    for key, value in reported.items():
        if isinstance(value, float):
            value = f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
        pairs.append((clean_line(str(key).replace("_", " ")), clean_line(str(value))))
    return pairs


def render_reported(reported: Mapping[str, Any]) -> list[str]:
    """Return lines with the last values reported by a job."""
    pairs = format_reported(dict(list(reported.items())[-MAX_REPORTED:]))
    omitted = len(reported) - len(pairs)
    shown = [f"  {brief_error(f'{key}: {value}')}" for key, value in pairs]
    return [*([f"  {omitted} other reported values are not shown"] if omitted else []), *shown]


def format_report(report: Mapping[str, Any]) -> str:
    """Format the numbers and texts in one report on one line, such as "step 20, loss 0.31"."""
    single = {key: value for key, value in report.items() if isinstance(value, (int, float, str))}
    return ", ".join(f"{key} {value}" for key, value in format_reported(single))


def describe_interruption(run_id: str) -> list[str]:
    """Return lines that tell the user why a run was interrupted, and how to continue it."""
    return [
        "  its ranks may have saved before the end; exit code 0 does not mean that the job is complete",
        (
            f"  to continue, run ansible-playbook report.yml -e run_id={run_id} to see the command of this launch, "
            "then run that command again with the job's option to resume from its newest checkpoint"
        ),
    ]


def render_last_lines(verdict: Mapping[str, Any], watched: tuple[int, int] | None) -> str:
    """Return the last output of the rank or launcher that failed first, for a terminal; empty if unknown.

    watched: node_rank and local rank of the rank whose output is already on the screen, and need not be repeated.
    """
    failure = verdict["first_failure"] or {}
    if not failure.get("last_lines") or failure["log"] in watched_logs(verdict, watched, failure["node_rank"]):
        return ""
    source = "the launcher" if failure["rank"] is None else f"rank {failure['rank']}"
    lines = [f"    {clean_line(line)}".rstrip() for line in failure["last_lines"][-SHOWN_LINES:]]
    return "\n".join([f"the last lines of {source} on {failure['node']}:", *lines])


def watched_logs(verdict: Mapping[str, Any], watched: tuple[int, int] | None, node_rank: int) -> list[str]:
    """Return the logs of a node that are shown on the screen."""
    if watched is None or watched[0] != node_rank:
        return []
    return [
        rank["log"]
        for node in verdict["nodes"]
        if node["node_rank"] == node_rank
        for rank in node["ranks"]
        if rank.get("local_rank") == watched[1]
    ]


def has_traceback(failure: Mapping[str, Any]) -> bool:
    """Return whether the last lines of a failure, which are already on the screen, show where the error was raised."""
    lines = failure.get("last_lines") or []
    first = failure["error"].partition("\n")[0]
    return any(TRACEBACK in line for line in lines) and any(first[:MAX_LINE] in line for line in lines)


def render_explanation(explanation: Explanation | None, failure: Mapping[str, Any]) -> list[str]:
    """Return why the first failure happened, and how certain the explanation is; if unknown, the complete error."""
    if explanation is None:
        error = failure["error"]
        complete = complete_error(error) if brief_error(error) != error else []
        unknown = [] if has_traceback(failure) else ["  cause:        unknown; the last lines of its log may show it"]
        return [*complete, *unknown]
    if explanation["confidence"] == "error":
        return [f"  cause:        {explanation['cause']}", f"  what to do:   {explanation['remedy']}"]
    seen = clean_line(explanation["evidence"])
    return [
        f"  possibly:     {explanation['cause']}",
        *([f"  because its log says: {seen}"] if seen else []),
        f"  what to do:   {explanation['remedy']}",
    ]


def complete_error(error: str) -> list[str]:
    """Return all lines of an error, wrapping long ones."""
    lines = [clean_line(line).rstrip() for line in error[:MAX_COMPLETE].split("\n")]
    wrapped = [piece for line in lines for piece in textwrap.wrap(line, MAX_ERROR, drop_whitespace=False)]
    return ["  its complete error:", *(f"    {line.rstrip()}" for line in wrapped)]


def format_reactions(count: int) -> str:
    """Return a clause about ranks that only reacted to the first failure."""
    return f"{count} other rank{'' if count == 1 else 's'} waited for it in vain or lost the connection to it"


def render_verdict(  # noqa: C901
    verdict: Mapping[str, Any], record: str, reported: Mapping[str, Any], explanation: Explanation | None = None
) -> str:
    """Return the verdict for a terminal.

    Args:
        verdict: The verdict.
        record: Path of result.json, or "" if it is not written.
        reported: The job's own reports by MUSTER_RESULT.
        explanation: That of the first failure, or None if unknown.
    """
    duration = f" after {format_duration(verdict['ended'] - verdict['started'])}" if verdict["started"] else ""
    size = f"{verdict['nnodes']} node{'' if verdict['nnodes'] == 1 else 's'}, world size {verdict['world_size']}"
    lines = [f"run {verdict['run_id']} {verdict['state']}{duration}: {size}"]
    lines += render_reported(reported)
    if verdict.get("cost") is not None:  # records from earlier versions have none
        lines.append(f"  cost: {format_amount(verdict['cost'], verdict['currency'])}")
    lines += render_attempts(verdict)
    failure = verdict["first_failure"]
    if failure:
        rank = f", rank {failure['rank']}" if failure["rank"] is not None else ""
        lines.append(
            f"  failed first: node {failure['node']} (node_rank {failure['node_rank']}){rank}: "
            f"{brief_error(failure['error'])}"
        )
        lines += render_explanation(explanation, failure)
        if verdict.get("reactions"):  # records from earlier versions have none
            lines.append(f"  consequences: {format_reactions(verdict['reactions'])}")
        if failure["log"]:
            lines.append(f"  its log:      {failure['node']}:{failure['log']}")
        if failure["log"] and failure["rank"] is not None:
            command = f"ansible-playbook logs.yml -e run_id={verdict['run_id']} -e rank={failure['rank']}"
            lines.append(f"  read it with: {command}")
    else:
        if verdict["reason"]:
            lines.append(f"  reason: {brief_error(verdict['reason'])}")
        if verdict["state"] == "interrupted":
            lines += describe_interruption(verdict["run_id"])
        for first in [node for node in verdict["nodes"] if node["log"]][:1]:
            lines.append(f"  logs: {first['name']}:{posixpath.dirname(first['log'])}")
    if failure and verdict["reason"] and failure["error"] != verdict["reason"]:
        lines.append(f"  the run ended because {brief_error(verdict['reason'])}")
    missing = [node["name"] for node in verdict["nodes"] if node["state"] == "lost"]
    if missing and verdict["state"] == "succeeded":
        lines.append(f"  lost during the run: {', '.join(missing)}")
    for node in verdict["nodes"]:
        if node["stuck"]:
            pids = ", ".join(str(pid) for pid in node["stuck"])
            lines.append(f"  on {node['name']} these processes survive even SIGKILL: {pids}; the node needs a reboot")
        if node["container"]:
            lines.append(f"  on {node['name']} the container may still exist and hold GPUs: {node['container']}")
        if node["unwritten"]:
            lines.append(
                f"  on {node['name']} writing to the run's directory failed at times: {node['unwritten']}; free up "
                f"space in {posixpath.dirname(node['log'])}, or set launch_node_directory to another directory"
            )
        if node.get("shortened"):
            lines.append(f"  {node['shortened']}")
        if node["gpus"]:
            lines.append(
                f"  on {node['name']} the GPUs failed during the run: {node['gpus']}; look for 'NVRM: Xid' in the "
                "output of sudo dmesg "
                "there, reboot it, and have the GPU replaced if the error returns"
            )
        for point, error in node["mounts"].items():
            lines.append(
                f"  on {node['name']} the mount {point} died during the run: {error}; check that its server is up, "
                "then mount it again (site.yml)"
            )
    if record:
        lines.append(f"  record: {record}")
    return "\n".join(clean_line(line) for line in lines)  # a job may have written any of these texts
