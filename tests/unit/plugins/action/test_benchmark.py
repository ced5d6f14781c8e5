# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refused benchmark requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.action.benchmark import ARGUMENT_SPEC, PROGRAM, plan_benchmark
from tests.unit.plugins.plugin_utils.report.records import write_record

NODES = ["a", "b"]


def plan(directory: Path, extra: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    """Plan a benchmark of NODES with default arguments except for `args`."""
    defaults = {name: option.get("default", "") for name, option in ARGUMENT_SPEC.items()}
    return plan_benchmark({**defaults, "nodes": NODES, **args}, directory, extra or {})


def write_benchmark(directory: Path, run_id: str, state: str, nodes: list[str]) -> None:
    """Write the record of a benchmark that ended without measurements."""
    record = write_record(directory, run_id, nodes=2)
    document = json.loads((record / "plan.json").read_text())
    document |= {"program": f"/home/me/{PROGRAM}", "nodes": [{"name": name} for name in nodes]}
    (record / "plan.json").write_text(json.dumps(document))
    (record / "result.json").write_text(json.dumps({"state": state}))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"baseline": "missing"}, "does not exist: name a run launched from this machine"),
        ({"baseline": "training"}, "baseline is training, which is not a benchmark"),
        ({"run_id": "training"}, "training is not a benchmark run: choose another name"),
        ({"run_id": "failed"}, "failed is a benchmark that has already ended (failed): choose another name"),
        ({"run_id": "others"}, "others is a benchmark of different nodes: choose another name"),
        ({"extra": {"fitted": "fit"}}, "fitted was set with -e, but the benchmark launches its own job"),
        ({"extra": {"launch_script": "a.py"}}, "launch_script was set with -e, but the benchmark launches its own job"),
        ({"seconds": 3000.0}, "benchmark_seconds is 3000, but must be between 5 and 400"),
        ({"collectives": ["all_recude"]}, "benchmark_collectives contains 'all_recude'; valid values: all_reduce"),
    ],
)
def test_invalid_request_is_refused(tmp_path: Path, args: dict[str, Any], message: str) -> None:
    write_record(tmp_path, "training")
    write_benchmark(tmp_path, "failed", "failed", NODES)
    write_benchmark(tmp_path, "others", "succeeded", ["a", "c"])
    with pytest.raises(AnsibleActionFail) as error:
        plan(tmp_path, **args)
    assert message in str(error.value)


def test_interrupted_benchmark_is_resumed(tmp_path: Path) -> None:
    write_benchmark(tmp_path, "cut", "succeeded", NODES)
    assert plan(tmp_path, run_id="cut")["run_exists"]
    assert not plan(tmp_path, run_id="new")["run_exists"]
