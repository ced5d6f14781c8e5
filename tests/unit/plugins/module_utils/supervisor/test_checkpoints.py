"""The checkpoint of a run reaches its ranks: real supervisors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import supervised
from tests.unit.supervised import Run, end_by_force, own_network

PRINT = (
    "import os, sys; "
    "print('RANK', sys.argv[1:], os.environ.get('MUSTER_ATTEMPT'), os.environ.get('MUSTER_CHECKPOINT'), flush=True)"
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    monkeypatch.setattr(supervised, "NETWORK", own_network(23))
    started: list[Run] = []
    yield started
    for run in started:
        end_by_force(run)


def output(run: Run) -> list[str]:
    """Return the output of the ranks on each node."""
    logs = [(run.node(rank) / "launcher.log").read_text().splitlines() for rank in range(len(run.plans))]
    return [line for lines in logs for line in lines if line.startswith("RANK")]


def execute(runs: list[Run], directory: Path, checkpoint: str) -> Run:
    run = supervised.make_run(
        directory,
        [[sys.executable, "-c", PRINT, "--lr", "1"]] * 2,
        lifeline_port=supervised.free_port(),
        checkpoint=checkpoint,
        resume_args=("--resume", "{checkpoint}"),
    )
    runs.append(run)
    run.start()
    run.wait_for("succeeded")
    return run


def test_ranks_of_all_nodes_get_the_checkpoint(runs: list[Run], tmp_path: Path) -> None:
    run = execute(runs, tmp_path, "/mnt/run/step 2")
    line = "RANK ['--lr', '1', '--resume', '/mnt/run/step 2'] 0 /mnt/run/step 2"
    assert output(run) == [line, line]


def test_first_start_has_neither_a_checkpoint_nor_resume_arguments(runs: list[Run], tmp_path: Path) -> None:
    run = execute(runs, tmp_path, "")
    assert output(run) == ["RANK ['--lr', '1'] 0 None"] * 2
    assert run.plans[0]["checkpoints"] == f"{run.node(0)}/checkpoints"
