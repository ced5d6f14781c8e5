# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that join an active run: the rules, and real supervisors."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.module_utils._run import join as run_join
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.members import (
    connection_name,
    generation_of,
    possible_followers,
    replace_member,
    validate_member,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CANDIDATE_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run
from ansible_collections.muster.training.plugins.module_utils._supervisor.new_members import NewMembers
from ansible_collections.muster.training.plugins.module_utils._supervisor.node_views import initial_views
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import (
    choose_candidate,
    has_quorum,
    majority,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.new_node import apply_replacements, plan_of_new_node
from tests.unit import supervised
from tests.unit.restarting import (
    WAIT,
    Maker,
    check_end,
    log,
    make,
    power_off,
    processes_of,
    signal_nodes,
    wait_for_ranks,
)
from tests.unit.supervised import Run, eventually

__all__ = ["make"]  # the fixture


def plan_of(count: int, replaced: set[int] | None = None) -> Any:
    """Return the parts of a plan that the rules read."""
    nodes = [{"name": f"node{rank}", "address": f"10.0.0.{rank}"} for rank in range(count)]
    for rank in replaced or set():
        nodes[rank]["generation"] = 1  # type: ignore[assignment]
    return {"restart": {"hostfile_lines": {}}, "nodes": nodes}


# - rules


def test_replacement_changes_the_node_everywhere() -> None:
    plan = plan_of(3)
    plan["restart"]["hostfile_lines"] = {"hostfile": ["node0 slots=8\n", "node1 slots=8\n", "node10 slots=8\n"]}
    replace_member(plan, {"node_rank": 1, "name": "new", "address": "10.0.0.9", "generation": 1})
    assert plan["nodes"][1] == {"name": "new", "address": "10.0.0.9", "generation": 1}
    assert plan["restart"]["hostfile_lines"]["hostfile"] == ["node0 slots=8\n", "new slots=8\n", "node10 slots=8\n"]
    again = copy.deepcopy(plan)
    replace_member(plan, {"node_rank": 1, "name": "new", "address": "10.0.0.9", "generation": 1})
    assert plan == again


@pytest.mark.parametrize(
    "changes",
    [
        {"node_rank": 3}, {"node_rank": -1}, {"node_rank": True}, {"name": "two\nlines"}, {"address": "; reboot"},
        {"generation": 0}, {"generation": "1"}, {"name": None},
    ],
)  # fmt: skip
def test_malformed_replacement_is_ignored(changes: dict[str, Any]) -> None:
    message: dict[str, Any] = {"node_rank": 1, "name": "new", "address": "10.0.0.9", "generation": 1}
    assert (validate_member({**message, "type": "member", "more": 1}, 3) or {}) == message
    assert validate_member({**message, **changes}, 3) is None


def test_each_generation_has_its_own_connection_name() -> None:
    plan = plan_of(3)
    assert connection_name("run", plan, 0, 1) == "run", "as without replacements"
    names = set()
    for generation in range(3):
        plan["nodes"][1]["generation"] = generation
        names.add(connection_name("run", plan, 0, 1))
        assert connection_name("run", plan, 0, 2) == "run"
        names.add(connection_name("run 1", plan, 1, 2))
    assert len(names) == 6, "old and new nodes cannot take each other's place, as hub or as peer"
    assert [generation_of(plan, rank) for rank in (1, 2, 3, -1, None, True, "1")] == [2, 0, 0, 0, 0, 0, 0]


@given(st.integers(3, 30), st.integers(0, 30), st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_replacements_never_let_two_partitions_continue(
    nnodes: int, hub: int, connected: set[int], replaced: set[int]
) -> None:
    """A hub continues only if the nodes that it cannot reach, which may follow another hub, are no majority."""
    plan = plan_of(nnodes, {rank for rank in replaced if rank < nnodes})
    hub %= nnodes
    unreachable = set(range(nnodes)) - connected - {hub}
    for successor in (rank for rank in unreachable if rank > hub):
        followers = {rank for rank in unreachable if rank == successor or rank in possible_followers(plan, successor)}
        lost = {rank for rank in range(hub) if not generation_of(plan, rank)}  # the nodes before a hub were lost
        if len(followers - lost) >= majority(nnodes):
            assert not has_quorum(plan, hub, connected | {hub})


def test_replacement_for_an_earlier_node_is_only_a_follower() -> None:
    assert possible_followers(plan_of(4), 1) == [2, 3]
    assert possible_followers(plan_of(4, {0}), 1) == [0, 2, 3]
    turns = [CANDIDATE_TIMEOUT * number for number in (0, 1, 2, 9)]
    assert [choose_candidate(0, 1, [], elapsed, 4) for elapsed in turns] == [2, 3, 3, 3]
    assert choose_candidate(0, 3, [], 0, 4) == 3, "there is no other"


# - real supervisors


@pytest.mark.parametrize("is_job", [False, True])
def test_no_node_joins_a_slurm_job(tmp_path: Path, is_job: bool) -> None:
    plan = {**plan_of(2), "elastic": False, "remote_start": False}
    nodes = initial_views(["node0", "node1"], "")
    nodes[1]["state"] = "lost"
    if is_job:
        queued_run.mark_as_queued(str(tmp_path))
    attempts = SimpleNamespace(takes_part=lambda _node: True, has_ended=lambda: True)
    journal = SimpleNamespace(path=lambda name: str(tmp_path / name))
    hub: Any = SimpleNamespace(plan=plan, nodes=nodes, own=0, attempts=attempts, journal=journal)
    assert [node["name"] for node in NewMembers(hub).missing(1.0)] == ([] if is_job else ["node1"])
    if is_job:
        with pytest.raises(RunError, match="the run is a Slurm job, which no other node can join"):
            run_join.request_join(str(tmp_path), {"name": "fresh", "address": "10.0.0.9", "gpus": 0})


def join(run: Run, name: str, host: int, hub: int = 0, directory: Path | None = None) -> int:
    """Add a new node to a run, as join.yml does; return its number. Its job prints 9 as its number.

    directory: of the runs on its machine.
    """
    directory = directory or run.directory
    address = f"{supervised.NETWORK}.{host}"
    reply = run_join.join(run.request(hub, member={"name": name, "address": address, "gpus": 0}))
    assert reply["is_hub"] and reply["changed"]
    rank = reply["node_rank"]
    facts = {"interface": "lo", "runs_directory": str(directory)}
    launched = apply_replacements(run.plans[hub], reply["nodes"])  # type: ignore[arg-type]
    plan: Any = plan_of_new_node(launched, reply["attempt"], rank, facts)
    plan["command"][-1] = "9"
    inputs = {"token": run.token, "environment": reply["environment"], "supervisor": run.sources, "programs": {}}
    request = {**run.request(rank, **inputs), "node": name, "plan": plan, "runs_directory": str(directory)}
    run_join.start_member(request)
    run.plans[rank] = plan
    return int(rank)


def test_new_node_waits_as_a_spare_and_takes_the_next_lost_nodes_rank(make: Maker) -> None:
    run = make(nodes=3, spares=1, restart_min_nodes=2)
    wait_for_ranks(run, 0, [0, 1])
    power_off(run, 1)
    wait_for_ranks(run, 1, [0, 2])
    missing = eventually(lambda: run.read(0, "status.json").get("missing"))
    assert missing == [{"node_rank": 1, "name": "node1", "excluded": False}]
    assert run_status.describe(str(run.node(0)), run.read(0, "plan.json"))["missing"] == missing
    assert join(run, "fresh", 77) == 1
    run.wait_for("spare", 1)
    eventually(lambda: not run.read(0, "status.json").get("missing"))
    assert "fresh joins the run in place of node1" in run.events()
    assert [node["name"] for node in run.read(2, "plan.json")["nodes"]] == ["node0", "fresh", "node2"]
    assert (run.directory / run.run_id / "node1.1" / "launcher.log").exists(), "the logs of the lost node remain"
    power_off(run, 2)
    eventually(lambda: "member 9 rank 1 of 2" in log(run, 1, 2))
    assert "member 0 rank 0 of 2" in log(run, 0, 2)
    run.stop()
    run.wait_for("stopped", 0, 1)
    result = run.result()
    assert [node["name"] for node in result["nodes"]] == ["node0", "fresh", "node2"]
    assert [record["nodes"] for record in result["attempts"]] == [
        ["node0", "node1"], ["node0", "node2"], ["node0", "fresh"],
    ]  # fmt: skip
    check_end(run, 0)


def test_run_waits_for_a_new_node_if_too_few_remain(make: Maker) -> None:
    run = make(nodes=2, restart_min_nodes=2, restart_wait=600.0)
    wait_for_ranks(run, 0, [0, 1])
    power_off(run, 1)
    run.wait_for("restarting", 0)
    eventually(lambda: "waiting up to 10 min for new nodes" in run.read(0, "status.json")["message"])
    assert join(run, "fresh", 78) == 1
    eventually(lambda: "member 9 rank 1 of 2" in log(run, 1, 1))
    run.stop()
    run.wait_for("stopped", 0, 1)
    check_end(run, 0)


def test_run_ends_when_no_node_joins_in_time(make: Maker) -> None:
    run = make(nodes=2, restart_min_nodes=2, restart_wait=1.0)
    wait_for_ranks(run, 0, [0, 1])
    power_off(run, 1)
    run.wait_for("failed", 0)
    assert "at least 2 nodes are needed, but only node0 can be used" in run.result()["not_restarted"]


def test_first_node_is_replaced_under_its_successor(make: Maker) -> None:
    run = make(nodes=4, restart_min_nodes=3, restart_wait=600.0)
    wait_for_ranks(run, 0, range(4))
    power_off(run, 0)
    eventually(lambda: "member 1 rank 0 of 3" in log(run, 1, 1))
    assert join(run, "fresh", 79, hub=1) == 0
    run.wait_for("spare", 0)
    power_off(run, 3)
    eventually(lambda: "member 9 rank" in log(run, 0, 2))
    assert run.read(0, "status.json")["hub"] == 1
    run.stop(1)
    run.wait_for("stopped", 0, 1, 2)
    check_end(run, 1)


def test_replaced_node_that_returns_runs_nothing(make: Maker) -> None:
    run = make(nodes=4, spares=1, restart_min_nodes=3, timeouts={"silence": 5.0})
    wait_for_ranks(run, 0, range(3))
    old = signal_nodes(run, signal.SIGSTOP, 1)
    wait_for_ranks(run, 1, [0, 3, 2])
    machine = run.directory / "machine"
    assert join(run, "fresh", 80, directory=machine) == 1
    status = str(machine / run.run_id / "node1" / "status.json")
    eventually(lambda: (read_json(status) or {}).get("state") == "spare")
    for pid in old:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    run.wait_for("failed", 1)
    assert read_json(status)["state"] == "spare" and run.read(0, "status.json")["attempt"] == 1
    run.stop()
    run.wait_for("stopped", 0, 2, 3)
    check_end(run, 0)


def test_complete_run_accepts_no_node(make: Maker) -> None:
    run = make(WAIT, nodes=3, restart_min_nodes=2)
    wait_for_ranks(run, 0, range(3))
    with pytest.raises(RunError, match="no node of the run is missing"):
        join(run, "fresh", 81)
    power_off(run, 2)
    wait_for_ranks(run, 1, [0, 1])
    with pytest.raises(RunError, match="node1 is already a node of the run"):
        join(run, "node1", 82)
    assert run.state(0) == "running" and processes_of(run, 1)


def test_repeated_request_gets_the_same_position(make: Maker) -> None:
    """keep was killed after the run had accepted the node but before the node's supervisor was started."""
    run = make(nodes=3, restart_min_nodes=2)
    wait_for_ranks(run, 0, range(3))
    power_off(run, 2)
    wait_for_ranks(run, 1, [0, 1])
    member = {"name": "fresh", "address": f"{supervised.NETWORK}.83", "gpus": 0}
    first = run_join.join(run.request(0, member=member))
    assert join(run, "fresh", 83) == first["node_rank"] == 2
    run.wait_for("spare", 2)
    assert generation_of(run.read(0, "plan.json"), 2) == 1
