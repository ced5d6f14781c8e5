"""Who leads a run after its first node is lost: the rules, and real supervisors that follow them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.replica import Replica
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import with_first
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import (
    choose_candidate,
    keeps_quorum,
    lifeline_name,
    majority,
    takeover_delay,
)
from tests.unit.plugins.module_utils.supervisor.test_attempts import (
    WAIT,
    Starter,
    kill_supervisor,
    launch,
    log,
    wait_for_log,
)
from tests.unit.supervised import Run, eventually

__all__ = ["launch"]  # the fixture


@given(st.integers(3, 100), st.integers(0, 100))
def test_hub_and_successor_never_go_on_at_the_same_time(nnodes: int, with_hub: int) -> None:
    with_hub = min(with_hub, nnodes)
    plan: Any = {"restart": {}, "nodes": [None] * nnodes}
    assert not (keeps_quorum(plan, with_hub) and nnodes - with_hub >= majority(nnodes))


def test_two_nodes_have_no_successor_and_keep_no_quorum() -> None:
    plan: Any = {"restart": {}, "nodes": [None] * 2}
    assert keeps_quorum(plan, 1) and majority(2) == 2


@given(st.integers(1, 20), st.sets(st.integers(0, 20)), st.floats(0, 1000))
def test_candidate_is_the_lowest_living_node_and_in_the_end_the_node_itself(
    own: int, lost: set[int], elapsed: float
) -> None:
    candidate = choose_candidate(own, 0, lost, elapsed)
    assert 0 < candidate <= own and (candidate == own or candidate not in lost)
    living = [rank for rank in range(1, own) if rank not in lost] + [own]
    assert choose_candidate(own, 0, lost, 0.0) == living[0]
    assert choose_candidate(own, 0, lost, 1e6) == own


def test_lost_hub_has_ended_its_job_before_another_node_takes_over() -> None:
    timeouts: Any = {"heartbeat": 2, "grace": 60.0, "silence": 10.0}
    assert takeover_delay(timeouts) > 2 + 60 + 5
    assert takeover_delay({**timeouts, "grace": 5.0}) >= 15


def test_hub_takes_rank_0_and_each_hub_has_a_lifeline_of_its_own() -> None:
    assert with_first([3, 1, 2], 1) == [1, 3, 2] and with_first([1, 2], 1) == [1, 2]
    assert lifeline_name("run", 0) == "run" != lifeline_name("run", 1)


def test_replica_ignores_what_is_malformed_or_repeated() -> None:
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


def result_of(run: Run, rank: int) -> Any:
    return eventually(lambda: run.read(rank, "result.json"))


def test_next_node_leads_the_run_after_the_loss_of_node_0(launch: Starter) -> None:
    run = launch(WAIT, nodes=3, restart_min_nodes=2)
    wait_for_log(run, 0, {member: f"member {member} rank {member} of 3" for member in range(3)})
    kill_supervisor(run, 0)
    wait_for_log(run, 1, {1: "member 1 rank 0 of 2", 2: "member 2 rank 1 of 2"})
    plans = [run.read(rank, "plan.json") for rank in (1, 2)]
    assert [(plan["hub"], plan["lifeline"]["address"]) for plan in plans] == [(1, plans[0]["node"]["address"])] * 2
    assert run.read(2, "status.json")["hub"] == 1 == run.read(1, "status.json")["hub"]
    events = (run.node(1) / "events.jsonl").read_text()
    assert "all 3 nodes have checked in" in events and "node1 leads the run from now on" in events
    run.stop(2)
    result = result_of(run, 1)
    assert (result["state"], result["hub"]) == ("stopped", 1)
    assert [(record["end_class"], record["node"]) for record in result["attempts"]][0] == ("node_lost", "node0")
    run.wait_until_gone()
    assert [rank for rank in range(3) if run.read(rank, "result.json")] == [1], "exactly one verdict"
