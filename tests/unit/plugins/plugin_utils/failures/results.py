"""Results of runs, as the supervisor of rank 0 writes them, for tests of the verdict."""

from __future__ import annotations

import signal
from typing import Any

CLOSED = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.10]:41234"
)


TERMINATED = -signal.SIGTERM


def rank(number: int, code: int | None, error: str = "") -> dict[str, Any]:
    return {"rank": number, "local_rank": number % 2, "exit_code": code, "error": error, "log": f"/run/{number}.log"}


def report(code: int | None, *ranks: Any, launcher_error: str = "", **more: Any) -> dict[str, Any]:
    return {
        "exit_code": code,
        "state": "ended",
        "ranks": list(ranks),
        "launcher_error": launcher_error,
        "launcher_log": "/run/launcher.log",
        "oom_kills": 0,
        "stuck": [],
        **more,
    }


def result(
    *reports: dict[str, Any] | None, first: str | None = None, reason: str = "why", **more: Any
) -> dict[str, Any]:
    """Return the result that rank 0's supervisor writes; a node without a report is lost."""
    return {
        "run_id": "first",
        "state": "failed",
        "reason": reason,
        "first_node": first,
        "world_size": 2 * len(reports),
        "nnodes": len(reports),
        "started": 1000.0,
        "ended": 1075.0,
        "nodes": [
            {
                "name": f"node{n}",
                "node_rank": n,
                "state": "lost" if item is None else "ended",
                "since": 1.0,
                "report": item,
                "launcher_log": f"/home/u/node{n}/launcher.log",
            }
            for n, item in enumerate(reports)
        ],
        **more,
    }
