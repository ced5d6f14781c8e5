"""Explain a case within milliseconds by calling the functions that explain a run, without launching one."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    last_output,
    launcher_error,
    rank_reports,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from tests.explain.cases import Explanation


def exit_code(end: int | str | None) -> int:
    """Return a rank's exit code in the form used by Popen. None: it was still running and was ended with the run."""
    if isinstance(end, str):
        return -int(getattr(signal, end))
    return -signal.SIGTERM if end is None else end


def node_result(case: dict[str, Any], rank: str, directory: Path, since: float) -> dict[str, Any]:
    """Return rank 0's view of a rank's node: launcher `env`, one rank per node."""
    log = directory / "launcher.log"
    log.write_text(case["ranks"].get(rank, ""), encoding="utf-8")
    end = case["exit"][rank]
    code, stopped = exit_code(end), end is None
    plan: dict[str, Any] = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": int(rank)}}
    error = launcher_error(code, log.read_text(encoding="utf-8"))
    report: dict[str, Any] = {
        "exit_code": code,
        "ranks": rank_reports(plan, str(directory), code, stopped),
        "launcher_error": error,
        "launcher_log": str(log),
        "ended_by_us": stopped,
        "oom_kills": int(end == "SIGKILL"),
        "limit_hits": 0,
    }
    report["last_log"], report["last_lines"] = last_output(report)  # type: ignore[arg-type]
    node = {"name": f"node{rank}", "node_rank": int(rank), "state": "ended", "since": since, "report": report}
    return {**node, "launcher_log": str(log)}


def explain_offline(case: dict[str, Any]) -> Explanation:
    """Return muster's explanation of a case."""
    ranks = sorted(case["exit"], key=int)
    ended = [rank for rank in case.get("order", ranks) if case["exit"][rank] is not None]
    with tempfile.TemporaryDirectory() as name:
        nodes = []
        for rank in ranks:
            directory = Path(name) / f"node{rank}"
            directory.mkdir()
            since = float(ended.index(rank) if rank in ended else len(ended))
            nodes.append(node_result(case, rank, directory, since))
        failing = [rank for rank in ended if case["exit"][rank] != 0]
        first = f"node{failing[0]}" if failing else None
        result = {"state": "failed", "reason": "", "first_node": first, "ended": 9.0, "nodes": nodes}
        failure = first_failure(result)
    explanation = None
    if failure is not None:
        explanation = explain_failure(failure["error"], failure["last_lines"], RunFacts(rank=failure["rank"]))
    if explanation is None:
        return Explanation("", failure["error"] if failure else "", "")
    return Explanation(explanation["id"], f"{explanation['cause']} {explanation['remedy']}", explanation["confidence"])
