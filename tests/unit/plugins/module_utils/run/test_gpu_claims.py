"""Concurrent runs on one node, with real supervisors and the GPUs in their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import gpu_claims
from ansible_collections.muster.training.plugins.module_utils._run import running_supervisors as run_alive
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

Start = Callable[..., Run]
SHOW_AND_WAIT = 'echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"; exec sleep 600'


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Start]:
    """Plan runs on the same two nodes with the given GPUs."""
    runs: list[Run] = []

    def make(*gpus: int) -> Run:
        commands = [["/bin/sh", "-c", SHOW_AND_WAIT]] * 2
        run = make_run(tmp_path, commands, first_address=61, gpus=gpus, lifeline_port=free_port())
        runs.append(run)
        return run

    yield make
    for run in runs:
        end_by_force(run)


def visible(run: Run, rank: int) -> str:
    log = run.node(rank) / "launcher.log"
    return str(eventually(lambda: log.read_text(encoding="utf-8").strip() if log.exists() else ""))


def test_two_runs_share_their_nodes_if_they_use_different_gpus(plan: Start) -> None:
    first, second = plan(0, 1), plan(2, 3)
    for run in (first, second):
        run.start()
    for run in (first, second):
        run.wait_for("running")
    assert [visible(first, rank) for rank in (0, 1)] == ["PCI_BUS_ID 0,1"] * 2
    assert [visible(second, rank) for rank in (0, 1)] == ["PCI_BUS_ID 2,3"] * 2
    first.stop()
    first.wait_until_gone()
    assert second.state(0) == second.state(1) == "running"
    second.stop()
    assert second.result()["state"] == "stopped"


@pytest.mark.parametrize("gpus", [(1, 2), ()])
def test_run_with_a_gpu_of_another_run_is_refused(plan: Start, gpus: tuple[int, ...]) -> None:
    first = plan(0, 1)
    first.start()
    refusal = rf"run {first.run_id}, owned by \S+, is still running on this node on GPUs 0, 1, in /"
    with pytest.raises(RunError, match=refusal):
        plan(*gpus).start(0)


def test_run_on_all_gpus_blocks_other_runs(plan: Start) -> None:
    first = plan()
    first.start()
    with pytest.raises(RunError, match=rf"run {first.run_id}, owned by \S+, is still running on this node, in /"):
        plan(3).start(0)


def test_replacing_run_stops_only_runs_on_its_gpus(plan: Start) -> None:
    first, second, third = plan(0), plan(1), plan(1, 2)
    for run in (first, second):
        run.start()
        run.wait_for("running")
    replies = third.start(replace=True)
    assert replies[0]["stopped"] == [second.run_id]
    assert not second.processes()
    third.wait_for("running")
    assert first.state(0) == first.state(1) == "running"


def test_facts_show_the_gpus_of_each_run(plan: Start) -> None:
    run = plan(2)
    run.start(0)
    run.supervisor(0)
    directories = {supervisor["directory"] for supervisor in run_alive.find_supervisors()}
    assert str(run.node(0)) in directories
    claim = gpu_claims.claim_of(str(run.node(0)))
    assert claim == {"gpus": [2], "working_directory": str(run.directory)}


@pytest.mark.parametrize("content", ["[]", '{"gpus": "all"}', "not JSON"])
def test_unreadable_plan_is_treated_as_using_all_gpus(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    assert gpu_claims.claim_of(str(tmp_path)) == {"gpus": [], "working_directory": ""}
    assert gpu_claims.claim_of(str(tmp_path / "missing"))["gpus"] == []


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [([], [], True), ([0], [], True), ([], [0], True), ([0, 1], [2], False), ([0, 1], [1, 2], True)],
)
def test_no_selection_means_all_gpus(first: list[int], second: list[int], shared: bool) -> None:
    assert gpu_claims.share_gpus(first, second) is shared
