"""Replies of nodes that describe a run or list the runs, as the nodes' own code makes them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import gpu_samples, list_runs, status
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import substitute_plan
from ansible_collections.muster.training.plugins.plugin_utils._record.node_replies import is_run_list, is_run_status

SAMPLES = "2026/11/22 10:15:00.123, 0, 97, [N/A], 81559, 60, 300.5, 700\n" * 2


def write_run(directory: Path, **fields: Any) -> dict[str, Any]:
    """Write the files of a running node, and return its plan."""
    directory.mkdir(parents=True)
    plan = {
        "run_id": "first",
        "unit": "muster-first",
        "rank_logs": "torchrun",
        "node": {"name": "a", "node_rank": 0, "first_rank": 0, "slots": 2},
        "nodes": [{"name": "a"}, {"name": "b"}],
        "world_size": 4,
        "working_directory": "/home/me/toy",
        "program": "train.py",
        "timeouts": {"grace": 5},
    }
    content = {"state": "running", "message": "", "since": time.time(), **fields}
    (directory / "status.json").write_text(json.dumps(content))
    (directory / gpu_samples.FILE).write_text(SAMPLES)
    return plan


RUNNING: dict[str, Any] = {
    "started": None,
    "ended_ranks": {"1": 1_700_000_000.5},
    "health": ["GPU 1 is slow"],
    "lost": "b",
    "hub": 0,
    "missing": [{"name": "b", "node_rank": 1, "excluded": False}],
    "hang": {"text": "t", "since": 1.5e9, "awaited_ranks": [1], "groups": []},
}
HOSTILE: dict[str, Any] = {
    "ended_ranks": {"0": float("-inf"), "1": float("nan")},
    "health": [5, None],
    "hang": {"text": "t", "since": float("-inf"), "awaited_ranks": None, "groups": 5},
}


@pytest.mark.parametrize("fields", [{}, RUNNING, HOSTILE, {"state": "succeeded"}, {"state": "odd"}])
@pytest.mark.parametrize("is_alive", [True, False])
def test_replies_of_the_nodes_own_code_are_valid(
    fields: dict[str, Any], is_alive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that writes anything into status.json does not make its node's reply invalid."""
    directory = tmp_path / "first" / "node0"
    plan = write_run(directory, **fields)
    for module in (status, list_runs):
        monkeypatch.setattr(module, "is_alive", lambda _path: is_alive)
    described = json.loads(json.dumps(status.describe(str(directory), plan)))
    assert is_run_status(described)
    if is_alive and fields.get("state", "running") == "running":
        assert described["gpus"]["devices"][0]["memory_used_mib"] is None
    assert is_run_list(json.loads(json.dumps([list_runs.describe(str(directory), plan)])))


def test_replies_about_a_run_without_files_are_valid(tmp_path: Path) -> None:
    directory = str(tmp_path / "first" / "node1")
    plan = substitute_plan({"run_id": "first", "directory": directory, "address": ""}, "a")
    assert is_run_status(json.loads(json.dumps(status.describe(directory, plan))))
    assert is_run_list(json.loads(json.dumps([list_runs.describe(directory, plan)])))
    assert is_run_list([])
