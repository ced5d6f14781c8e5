"""Identification of a node's ranks among its processes if the launcher sets no rank variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import (
    Process,
    StackCollector,
)

SHIM, CLIENT, MONITOR, SCRIPT, CHILD = 1, 1218, 1240, 1250, 1260


def process(pid: int, parent: int, path: str = "") -> Process:
    """Return a process that handles the signals, with a stack file for Python; Go programs handle all signals."""
    created = Process(pid, parent, "S")
    created.has_handler, created.path = True, path
    return created


@pytest.mark.parametrize(
    "processes",
    [
        [process(SCRIPT, SHIM, "process-1.txt")],
        [process(CLIENT, 7), process(SCRIPT, SHIM, "process-1.txt")],  # docker
        [process(CLIENT, 7), process(MONITOR, CLIENT), process(SCRIPT, MONITOR, "process-1.txt")],  # podman
        [process(SCRIPT, SHIM, "process-1.txt"), process(CHILD, SCRIPT)],  # a data loader's worker
    ],
)
def test_script_that_the_launcher_env_starts_is_the_rank(tmp_path: Path, processes: list[Process]) -> None:
    plan: Any = {"node": {"slots": 1, "first_rank": 0}, "rank_logs": "launcher"}
    by_pid = {process.pid: process for process in processes}
    StackCollector(str(tmp_path), plan).number_ranks(by_pid)
    assert [pid for pid, process in by_pid.items() if process.local_rank == 0] == [SCRIPT]
