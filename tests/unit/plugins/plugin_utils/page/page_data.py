# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replies of nodes and records of runs for tests of the live page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START = 1_795_000_000.0
SECRET = "<img src=x onerror=alert(1)>\x1b[31m"


def make_plan(nodes: int = 2, slots: int = 2, run_id: str = "first", price: float | None = 3.6) -> dict[str, Any]:
    """Return the parts of a record's plan that the page reads."""
    return {
        "run_id": run_id,
        "program": "train.py",
        "arguments": ["--epochs", "3"],
        "world_size": nodes * slots,
        "currency": "USD",
        "nodes": [
            {"name": f"gpu{rank}", "first_rank": rank * slots, "slots": slots, "price_per_hour": price}
            for rank in range(nodes)
        ],
    }


def make_sample(
    node: str, number: int, utilization: float = 90.0, gpus: int = 2, moment: float = START
) -> dict[str, Any]:
    """Return a sample of a node, as stored by the node that leads the run."""
    return {
        "node": node,
        "number": number,
        "time": moment,
        "gpus": [
            {
                "index": index,
                "utilization_percent": utilization,
                "memory_used_mib": 40_000.0,
                "memory_total_mib": 80_000.0,
                "temperature_celsius": 60.0,
                "power_watts": 600.0 + index,
            }
            for index in range(gpus)
        ],
        "memory_used": 25.0,
        "memory_total": 100.0,
        "disk_free": 30.0,
        "disk_total": 100.0,
    }


def make_reply(**fields: Any) -> dict[str, Any]:
    """Return the updates on a run, in the form sent by the node that leads it."""
    nodes = [{"name": f"gpu{rank}", "node_rank": rank, "state": "running", "since": START} for rank in range(2)]
    status = {"state": "running", "message": "", "started": START, "updated": START, "nodes": nodes}
    usual = {
        "active": True,
        "status": {**status, **fields.pop("status", {})},
        "outputs": {},
        "left_out": {},
        "seconds_since_output": 1.0,
        "events": [],
        "unfinished": "",
        "cursors": {"/x/log": 5},
        "result": None,
        "samples": [],
        "sample_cursor": [1, 2, 3],
    }
    return {**usual, **fields}


def make_result(plan: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the result of a run."""
    usual = {
        "run_id": plan["run_id"],
        "state": "succeeded",
        "reason": "all ranks have succeeded",
        "world_size": plan["world_size"],
        "nnodes": len(plan["nodes"]),
        "started": START,
        "ended": START + 3600,
        "nodes": [
            {
                "name": node["name"],
                "node_rank": rank,
                "state": "ended",
                "since": START,
                "report": None,
                "lost_reason": "",
                "survived": False,
                "launcher_log": "",
            }
            for rank, node in enumerate(plan["nodes"])
        ],
    }
    return {**usual, **fields}


def write_record(directory: Path, plan: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> Path:
    """Write the record of a run."""
    record = directory / str(plan["run_id"])
    record.mkdir(parents=True)
    (record / "plan.json").write_text(json.dumps(plan))
    if result is not None:
        (record / "result.json").write_text(json.dumps(result))
    return record
