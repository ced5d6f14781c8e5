"""The leader of a run after its first node is lost: the rules, and real supervisors."""

from __future__ import annotations

import functools
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run import save as run_save
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import Hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.replica import Replica
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import move_to_front
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import (
    choose_candidate,
    has_quorum,
    lifeline_name,
    majority,
    takeover_delay,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.successor import find_broken
from tests.unit.restarting import (
    WAIT,
    Maker,
    check_end,
    log,
    make,
    power_off,
    processes_of,
    result_of,
    signal_nodes,
    wait_for_ranks,
)
from tests.unit.supervised import eventually

__all__ = ["make"]  # the fixture


@given(st.integers(3, 60), st.integers(0, 60), st.sets(st.integers(0, 60)))
def test_hub_and_successor_never_both_continue(nnodes: int, hub: int, connected: set[int]) -> None:
    plan: Any = {"restart": {}, "nodes": [{}] * nnodes}
    unreachable = set(range(nnodes)) - connected - {hub}
    for successor in unreachable:
        followers = {rank for rank in unreachable if rank >= successor}
        if successor > hub and len(followers) >= majority(nnodes):
            assert not has_quorum(plan, hub, connected | {hub})


def test_two_nodes_have_no_successor_and_no_quorum() -> None:
    plan: Any = {"restart": {}, "nodes": [{}] * 2}
    assert has_quorum(plan, 0, {0}) and majority(2) == 2


@given(st.integers(1, 20), st.sets(st.integers(0, 20)), st.floats(0, 1000))
def test_candidate_is_the_lowest_living_node_and_eventually_the_node_itself(
    own_rank: int, lost: set[int], elapsed: float
) -> None:
    candidate = choose_candidate(own_rank, 0, lost, elapsed)
    assert 0 < candidate <= own_rank and (candidate == own_rank or candidate not in lost)
    living = [rank for rank in range(1, own_rank) if rank not in lost] + [own_rank]
    assert choose_candidate(own_rank, 0, lost, 0.0) == living[0]
    assert choose_candidate(own_rank, 0, lost, 1e6) == own_rank


def test_lost_hub_has_ended_its_job_before_another_node_takes_over() -> None:
    timeouts: Any = {"heartbeat": 2, "grace": 60.0, "silence": 10.0}
    assert takeover_delay(timeouts) > 2 + 60 + 5
    timeouts["grace"] = 5.0
    assert takeover_delay(timeouts) >= 15


def test_hub_takes_rank_0_and_each_hub_has_its_own_lifeline() -> None:
    assert move_to_front([3, 1, 2], 1) == [1, 3, 2] and move_to_front([1, 2], 1) == [1, 2]
    assert lifeline_name("run", 0) == "run" != lifeline_name("run", 1)


def test_replica_ignores_malformed_or_repeated_messages() -> None:
    replica = Replica()
    event = {"type": "event", "event": {"time": 1.0, "event": "go", "text": "all"}}
    for message in (event, event, {"type": "event", "event": {"time": "x"}}, {"type": "state", "final": 1}, {}):
        replica.take(message)
    assert len(replica.events) == 1 and not replica.is_final
    record = {"number": 0, "nodes": ["a"], "started": 1.0, "ended": 2.0, "end_class": "", "node": "", "reason": ""}
    replica.take({"type": "record", "record": record})
    assert replica.records == [], "the checkpoint is missing"
    for number in (1, 0, 0):
        replica.take({"type": "record", "record": {**record, "checkpoint": "", "number": number}})
    assert [record["number"] for record in replica.records] == [0]


def test_next_node_leads_the_run_after_the_loss_of_node_0(make: Maker) -> None:
    run = make()
    wait_for_ranks(run, 0, [0, 1, 2])
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 2])
    plans = [run.read(rank, "plan.json") for rank in (1, 2)]
    assert [(plan["hub"], plan["lifeline"]["address"]) for plan in plans] == [(1, plans[0]["node"]["address"])] * 2
    assert run.read(2, "status.json")["hub"] == 1 == run.read(1, "status.json")["hub"]
    events = (run.node(1) / "events.jsonl").read_text()
    assert "all 3 nodes have checked in" in events and "node1 will lead the run from now on" in events
    run.stop(2)
    result = result_of(run, 1)
    assert (result["state"], result["hub"]) == ("stopped", 1)
    first = result["attempts"][0]
    assert first["started"] <= first["noticed"] <= first["ended"] and first["silent"] >= 0
    assert [(record["end_class"], record["node"]) for record in result["attempts"]][0] == ("node_lost", "node0")
    check_end(run, 1)


def test_successor_takes_rank_0_and_a_spare_replaces_the_successor(make: Maker) -> None:
    run = make(nodes=4, spares=1, restart_min_nodes=3)
    wait_for_ranks(run, 0, [0, 1, 2])
    run.wait_for("spare", 3)
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 3, 2])
    run.stop(1)
    check_end(run, 1)


def test_leadership_changes_twice_and_the_attempt_count_continues(make: Maker) -> None:
    run = make(nodes=5, restart_min_nodes=3, restarts=2)
    wait_for_ranks(run, 0, range(5))
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 2, 3, 4])
    power_off(run, 1)
    wait_for_ranks(run, 2, [2, 3, 4])
    power_off(run, 4)
    result = result_of(run, 2)
    assert [record["node"] for record in result["attempts"]] == ["node0", "node1", "node4"]
    assert result["not_restarted"] == "all 2 restarts are used up (launch_restarts)" and result["state"] == "failed"
    check_end(run, 2)


def test_node_0_and_another_node_are_lost_at_once(make: Maker) -> None:
    run = make(nodes=5, restart_min_nodes=3)
    wait_for_ranks(run, 0, range(5))
    power_off(run, 0, 1)
    wait_for_ranks(run, 1, [2, 3, 4])
    run.stop(3)
    check_end(run, 2)


def test_minority_ends_without_a_verdict(make: Maker) -> None:
    run = make(nodes=4)
    wait_for_ranks(run, 0, range(4))
    power_off(run, 0, 1)
    run.wait_for("failed", 2, 3)
    assert "3 of the 4 nodes that started must reach each other" in run.read(2, "status.json")["message"]
    assert run.read(2, "plan.json")["attempt"] == 0
    check_end(run)


def test_hub_without_most_of_its_spares_ends_its_job(make: Maker) -> None:
    """The spares are a majority, so one of them may lead the run by itself."""
    run = make(nodes=3, spares=2, restart_min_nodes=1)
    wait_for_ranks(run, 0, [0])
    for spare in (1, 2):
        run.wait_for("spare", spare)
    power_off(run, 1, 2)
    result = result_of(run, 0)
    assert result["cut_off"] and "fewer than half of the nodes can be reached" in result["reason"]
    check_end(run)


@pytest.mark.parametrize(("connected", "waits"), [([1, 2], True), ([1], False)])
def test_hub_without_a_majority_does_not_wait_for_new_nodes(connected: list[int], waits: bool) -> None:
    """The others may have continued under another node, and without a majority, no node can join."""
    attempts = SimpleNamespace(
        has_ended=lambda: True, next=lambda *_arguments: None, waiting="waiting for new ones", lacks_nodes=True,
        number=1, needs_hub=False, refused="", exit_code=1,
    )  # fmt: skip
    names = [f"gpu{rank}" for rank in range(5)]
    hub: Any = SimpleNamespace(
        attempts=attempts, own=0, nodes=names, names=names, plan={"restart": {}, "nodes": names}, go=True,
        stop_requested=False, is_cut_off=False, journal=SimpleNamespace(set_state=lambda *_arguments: None),
        admitted_connections=lambda: [SimpleNamespace(node_rank=rank) for rank in connected],
    )  # fmt: skip
    hub.refuse_without_quorum = functools.partial(Hub.refuse_without_quorum, hub)
    assert Hub.continues(hub, 1.0) is waits and hub.is_cut_off is not waits
    assert waits or attempts.refused.startswith("only gpu0, gpu1 of the 5 nodes that started can be reached")


def test_broken_hardware_is_still_known_after_a_succession() -> None:
    events = [{"event": "broken", "node": "node1", "text": "x" * 2000}, {"event": "health", "node": "node1"}]
    lines = ["[]", "not JSON", *map(json.dumps, events), json.dumps({"event": "broken", "node": "stranger"})]
    assert find_broken(lines, ["node0", "node1"]) == [{"node": "node1", "text": "x" * 1000}]


def test_two_nodes_have_no_majority(make: Maker) -> None:
    run = make(nodes=2, restart_min_nodes=1)
    wait_for_ranks(run, 0, range(2))
    power_off(run, 0)
    run.wait_for("failed", 1)
    assert "node0 is lost" in run.read(1, "status.json")["message"]
    check_end(run)


def test_node_0_with_a_broken_gpu_hands_the_run_over_at_once(make: Maker) -> None:
    error = 'echo "RuntimeError: CUDA error: unspecified launch failure"; exit 1'
    script = f'if [ "$MUSTER_ATTEMPT$1" = 00 ]; then until [ -e "$PWD/break" ]; do sleep 0.1; done; {error}; fi; {WAIT}'
    run = make(script)
    eventually(lambda: "member 2" in log(run, 2, 0))
    Path(run.plans[0]["working_directory"], "break").touch()
    wait_for_ranks(run, 1, [1, 2])
    run.wait_for("failed", 0)
    assert "the run continues without this node" in run.read(0, "status.json")["message"]
    run.stop(1)
    first = result_of(run, 1)["attempts"][0]
    assert (first["end_class"], first["node"]) == ("hardware", "node0")
    check_end(run, 1)


def test_node_0_that_returns_ends_and_runs_nothing(make: Maker) -> None:
    run = make(timeouts={"silence": 8.0})
    wait_for_ranks(run, 0, range(3))
    cut_off = signal_nodes(run, signal.SIGSTOP, 0)
    wait_for_ranks(run, 1, [1, 2])
    for pid in cut_off:
        os.kill(pid, signal.SIGCONT)
    run.wait_for("failed", 0)
    eventually(lambda: not processes_of(run, 0))
    assert not (run.node(0) / "attempt-1").exists() and run.read(0, "plan.json")["attempt"] == 0
    assert run.state(1) == run.state(2) == "running"
    run.stop(1)
    check_end(run, 1)


def test_user_stops_a_run_that_is_looking_for_a_leader(make: Maker) -> None:
    run = make()
    wait_for_ranks(run, 0, range(3))
    power_off(run, 0)
    eventually(lambda: run.state(1) in ("stopping", "restarting") and run.state(2) in ("stopping", "restarting"))
    for rank in (1, 2):
        run.stop(rank)
    run.wait_for("stopped", 1, 2)
    check_end(run)


def test_user_stops_a_candidate_that_is_waiting_for_a_majority(make: Maker) -> None:
    run = make(nodes=4)
    wait_for_ranks(run, 0, range(4))
    power_off(run, 0, 3)
    signal_nodes(run, signal.SIGSTOP, 2)
    eventually(lambda: "node1 is waiting for the others" in (run.read(1, "status.json") or {}).get("message", ""))
    run.stop(1)
    result = result_of(run, 1)
    assert (result["state"], result["attempts"][0]["node"]) == ("stopped", "node0")
    signal_nodes(run, signal.SIGKILL, 2)
    check_end(run, 1)


def test_successor_accepts_requests_to_save_and_may_send_notifications(make: Maker) -> None:
    run = make()
    wait_for_ranks(run, 0, range(3))
    assert run_save.save(run.request(1))["changed"] is False
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 2])
    run.wait_for("running", 1)
    assert run_save.save(run.request(1))["changed"] is True
    assert run_status.read(run.request(2, wait=60, hub=0))["run"]["hub"] == 1
    run.stop(1)
    check_end(run, 1)
