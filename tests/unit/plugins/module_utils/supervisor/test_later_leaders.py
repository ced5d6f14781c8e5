# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs led by a node other than the first: the port, and notices. Without jobs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.ports import LIFELINE_PORTS, lifeline_port
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import (
    choose_candidate,
    gather_timeout,
    has_given_up,
)
from tests.unit import supervised
from tests.unit.plugins.module_utils.supervisor.test_joining import Make, Network, network

__all__ = ["network"]  # the fixture

RECLAIM_NOTICE = {"source": "ec2", "text": "it will be taken away", "ends": True, "machine": True, "seconds": 1.0}


@contextlib.contextmanager
def other_programs(run: Network, member: int, *numbers: int) -> Iterator[list[socket.socket]]:
    """Listen on ports from which a node would lead a run, without ever replying."""
    plan = run.run.plans[member]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                socket.create_server((plan["node"]["address"], lifeline_port(plan["lifeline"]["port"], number)))
            )
            for number in numbers
        ]


def test_ports_of_a_later_leader_are_below_the_planned_port() -> None:
    assert [lifeline_port(29499, number) for number in range(5)] == [29499, 29498, 29497, 29496, 29499]
    assert lifeline_port(2, 3) == 1, "always a port"


@given(own_rank=st.integers(1, 500), hub=st.integers(0, 500), total=st.integers(3, 501))
def test_each_node_takes_the_lead_or_gives_up_within_minutes(own_rank: int, hub: int, total: int) -> None:
    longest = gather_timeout(total)
    assert longest <= gather_timeout(500) <= 180.0, "a split network frees its nodes soon"
    assert not has_given_up(own_rank, hub, longest, total), "those before it may still answer"
    leads = own_rank > hub and choose_candidate(own_rank, hub, [], longest + 0.1, total) == own_rank
    assert own_rank == hub or leads or has_given_up(own_rank, hub, longest + 0.1, total)


def test_first_node_is_contacted_only_on_the_planned_port(network: Make) -> None:
    run = network(3)
    with other_programs(run, 0, 1):
        run.until(lambda: len(run.ranks()) == 3)
        assert {node.end.port_number for name, node in run.nodes.items() if name != "node0"} == {0}


def test_later_leader_uses_a_different_port_from_a_run_that_shares_its_node(network: Make, tmp_path: Path) -> None:
    """Nodes 1 and 2 are the first two of another run, which uses the same port."""
    run = network(3, restart_min_nodes=2)
    port = run.run.lifeline[1]
    second_run = Network(tmp_path / "other", 2, first_address=2, lifeline_port=port)
    # the nodes of the other run also take over in order
    run.nodes.update({f"other {name}": node for name, node in second_run.nodes.items()})
    run.until(lambda: len(run.ranks()) == 5)
    run.lose("node0")
    run.until(lambda: {name: run.ranks().get(name) for name in ("node1", "node2")} == {"node1": 0, "node2": 1})
    assert run.nodes["node2"].end.port_number % LIFELINE_PORTS == 1
    assert second_run.ranks() == {"node0": 0, "node1": 1}, "the other run continues"
    assert second_run.nodes["node0"].end.stop_reason is None
    run.lose("node2", "node1")


def test_node_without_a_free_port_passes_the_lead_to_the_next(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ansible_collections.muster.training.plugins.module_utils._supervisor.succession.CANDIDATE_TIMEOUT", 1.0
    )
    run = network(5, restart_min_nodes=2)
    run.until(lambda: len(run.ranks()) == 5)
    with other_programs(run, 1, *range(LIFELINE_PORTS)):
        run.lose("node0")
        run.until(lambda: run.nodes["node1"].end.result_state == "failed")
        run.lose("node1")
    run.until(lambda: run.ranks() == {"node2": 0, "node3": 1, "node4": 2})


def test_leaders_whose_machines_are_reclaimed_hand_over_the_run(network: Make) -> None:
    run = network(5, restart_min_nodes=2, restart_when=("interrupted",))
    run.until(lambda: len(run.ranks()) == 5)
    run.nodes["node0"].end.raise_notice(RECLAIM_NOTICE)
    run.until(lambda: run.nodes["node0"].end.result_state == "failed")
    assert "the run continues without this node" in run.nodes["node0"].journal.message
    run.lose("node0")
    run.until(lambda: run.ranks() == {"node1": 0, "node2": 1, "node3": 2, "node4": 3})
    run.nodes["node1"].end.raise_notice(RECLAIM_NOTICE)
    run.until(lambda: run.nodes["node1"].end.result_state == "failed")
    run.lose("node1")
    run.until(lambda: run.ranks() == {"node2": 0, "node3": 1, "node4": 2})
    history = run.nodes["node2"].end.attempts.history
    assert [(record["end_class"], record["node"]) for record in history] == [
        ("interrupted", "node0"),
        ("interrupted", "node1"),
    ]


def test_notice_that_arises_without_a_leader_reaches_the_next_one(network: Make) -> None:
    run = network(5, restart_min_nodes=2, restart_when=("node_lost", "interrupted"))
    run.until(lambda: len(run.ranks()) == 5)
    run.lose("node0")
    run.until(lambda: run.nodes["node3"].end.lost_at is not None)
    run.nodes["node3"].end.raise_notice(RECLAIM_NOTICE)
    run.until(lambda: run.ranks() == {"node1": 0, "node2": 1, "node4": 2})
    assert run.nodes["node1"].end.nodes[3]["excluded"]


def test_limits_count_from_the_first_start_under_each_leader(network: Make) -> None:
    run = network(3, restart_min_nodes=2, time_limit=100.0)
    run.until(lambda: len(run.ranks()) == 3)
    hub = run.nodes["node0"].end
    run.until(lambda: hub.notices.started is not None)
    hub.notices.started -= 85.0
    hub.replicator.state = {}  # the other nodes know when the job started, and are notified once
    run.until(lambda: "85% of launch_time_limit" in "".join(hub.journal.events))
    replica = run.nodes["node1"].end.replica
    run.until(lambda: replica.started is not None and time.monotonic() - replica.started > 85.0)
    run.lose("node0")
    run.until(lambda: run.ranks() == {"node1": 0, "node2": 1})
    end = run.nodes["node1"].end
    assert end.notices.elapsed() >= 85.0
    run.nodes["node1"].step()
    assert "".join(end.journal.events).count("of launch_time_limit") == 1, "the warning is not repeated"


@pytest.mark.parametrize(("is_ending", "state"), [(True, "interrupted"), (False, "failed")])
def test_node_is_interrupted_if_it_is_saving_when_the_leader_of_a_final_attempt_is_lost(
    network: Make, is_ending: bool, state: str
) -> None:
    """A limit ends the run, so no node succeeds the first."""
    run = network(3)
    run.until(lambda: len(run.ranks()) == 3)
    for name in ("node1", "node2"):
        peer: Any = run.nodes[name].end
        peer.replica.is_final, peer.is_ending = True, is_ending
    run.lose("node0")
    run.until(lambda: [run.nodes[name].end.result_state for name in ("node1", "node2")] == [state] * 2)


def test_price_of_a_joining_node_is_included_in_the_cost(network: Make) -> None:
    run = network(3, restart_min_nodes=2, cost_limit=10.0)
    run.until(lambda: len(run.ranks()) == 3)
    hub = run.nodes["node0"].end
    for node in hub.plan["nodes"]:
        node["price_per_hour"] = 1.0
    run.lose("node1")
    run.until(run.missing)
    request = {"id": "a", "name": "fresh", "address": f"{supervised.NETWORK}.99", "gpus": 0, "price_per_hour": 3.0}
    hub.new_members.request, hub.new_members.deadline = request, float("inf")
    run.until(lambda: hub.names[1] == "fresh")
    assert hub.plan["nodes"][1]["price_per_hour"] == 3.0
    (limit,) = hub.notices.limits
    assert limit.seconds == pytest.approx(10.0 / 5.0 * 3600)
