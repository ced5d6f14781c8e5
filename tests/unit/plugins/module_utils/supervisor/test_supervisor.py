"""A node's supervisor without its processes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import machine_shutdown
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    limit_hits,
    process_table,
    read_stat,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_report
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    BUSY_STEP_INTERVAL,
    IDLE_STEP_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor import journal, lifeline_end
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from tests.unit.single_node import NodeMaker


def test_valid_report_passes_the_check_unchanged(make_node: NodeMaker) -> None:
    supervisor = make_node(1, 2).supervisor
    supervisor.launcher.code = 1
    supervisor.make_report([4711])
    assert supervisor.report is not None and supervisor.report["ranks"]
    rank: Any = supervisor.report["ranks"][0]
    rank.update(closed=True, first=True, ended_by_us=True)
    supervisor.report["mounts"] = {"/data": "it has died"}
    assert validate_report(supervisor.report) == supervisor.report


def test_list_of_processes_costs_three_system_calls_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.open", full)  # it adds six: a file object with a buffer
    assert process_table()[os.getpid()] == (os.getppid(), "R")
    assert read_stat("/proc/self/missing") == []


def test_memory_limit_hits_are_summed_over_top_level_cgroups(tmp_path: Path) -> None:
    """A top-level group counts for all below it; a group without the controller has no count."""
    assert limit_hits(str(tmp_path / "nowhere")) is None is limit_hits(str(tmp_path))
    for name, hits in (("system.slice", 2), ("machine.slice", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.events").write_text(f"low 0\nhigh 0\nmax 73\noom {hits}\noom_kill 9\n")
    (tmp_path / "init.scope").mkdir()
    assert limit_hits(str(tmp_path)) == 3


def full(*_anything: Any) -> None:
    """Simulate writing to a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_run_continues_when_its_directory_cannot_be_written(
    make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_rank_0(2)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_json", full)
        patch.setattr(journal, "open_private", full)  # writing events fails
        node.supervisor.write_status(node.now)
        node.supervisor.journal.event("mount", "what nobody reads")
        assert node.supervisor.journal.status_due > node.now, "it would try again at once"
    assert node.supervisor.lifeline.stop_reason is None
    node.supervisor.launcher.code = 0
    node.supervisor.make_report([])
    node.hub.take_report(node.hub.nodes[1], validate_report({"exit_code": 0}))
    node.judge(node.now)
    verdict = node.run.result()
    assert verdict["state"] == "succeeded"
    assert verdict["nodes"][0]["report"]["unwritten"] == "No space left on device"


def test_exit_code_for_the_launcher_is_written_once_the_disk_has_room(
    make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_rank_0(2)
    (node.run.node(0) / "asked").mkdir()
    for entry in node.hub.nodes:
        entry["remote_started"] = True
    entry = node.hub.nodes[1]
    entry["state"], entry["report"] = "ended", validate_report({"exit_code": 3})

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_json", full)
        node.hub.forward_commands(node.now)
    node.hub.forward_commands(node.now)
    assert json.loads((node.run.node(0) / "asked" / "1.exit").read_text()) == 3


def test_partial_file_is_removed_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(descriptor: int, mode: str, **_more: Any) -> Any:
        os.write(descriptor, b"{")
        os.close(descriptor)
        full()

    monkeypatch.setattr(os, "fdopen", half)
    with pytest.raises(OSError, match="No space left"):
        write_json(str(tmp_path / "status.json"), {})
    assert list(tmp_path.iterdir()) == []


def test_reserve_is_freed_for_the_final_status(make_node: NodeMaker) -> None:
    node = make_node(1, 2)
    reserve = node.run.node(1) / "reserve"
    reserve.touch()
    node.supervisor.lifeline.result_state = "failed"
    node.supervisor.clean_up()
    assert not reserve.exists() and node.run.state(1) == "failed"


def test_node_that_waits_for_the_others_takes_no_more_steps_than_one_whose_job_runs(make_node: NodeMaker) -> None:
    node = make_node(1, 3)
    assert node.supervisor.step_interval() == BUSY_STEP_INTERVAL, "it tries to check in"
    node.peer.connections = [node.wire_to(0)]
    assert node.supervisor.step_interval() == IDLE_STEP_INTERVAL
    node.supervisor.journal.set_state("restarting")
    assert node.supervisor.step_interval() == BUSY_STEP_INTERVAL
    node.supervisor.journal.set_state("running")
    assert node.supervisor.step_interval() == IDLE_STEP_INTERVAL
    assert make_node(0, 3).supervisor.step_interval() == IDLE_STEP_INTERVAL


@pytest.mark.parametrize("elastic", [False, True])
def test_shutdown_of_a_machine_is_not_a_request_to_stop(
    make_node: NodeMaker, monkeypatch: pytest.MonkeyPatch, elastic: bool
) -> None:
    node = make_node(1, 2, **({"min_nnodes": 1} if elastic else {}))
    node.peer.connections = [node.wire_to(0)]
    node.peer.connections[0].stage = "open"
    monkeypatch.setattr(lifeline_end, "is_shutting_down", lambda: True)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    node.supervisor.carry_out_orders()
    assert node.sent_to(0) == ["failing"]
    node.supervisor.make_report([])
    assert node.supervisor.report is not None
    report = node.supervisor.report
    assert (report["shutdown"], report["reason"]) == (True, "node1 was rebooted or shut down")
    result = {"first_node": "node1", "ended": 2.0, "reason": report["reason"], "nodes": []}
    result["nodes"] = [{"name": "node1", "node_rank": 1, "state": "ended", "since": 1.0, "report": report}]
    failure = first_failure(result)
    assert failure is not None and (failure["node"], failure["error"]) == ("node1", report["reason"])


@pytest.mark.parametrize("rank", [0, 1])
def test_requested_stop_takes_precedence_over_a_shutdown(
    make_node: NodeMaker, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    node = make_node(rank, 2)
    (node.run.node(rank) / "stop").touch()
    monkeypatch.setattr(lifeline_end, "is_shutting_down", lambda: True)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    assert node.supervisor.lifeline.stop_requested


def test_signs_of_a_shutdown_are_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_shutdown, "SIGNS", (str(tmp_path / "nologin"),))
    assert not machine_shutdown.is_shutting_down()
    (tmp_path / "nologin").touch()
    assert machine_shutdown.is_shutting_down()
