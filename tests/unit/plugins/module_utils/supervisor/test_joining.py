# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that join a run: hubs and peers in one process, connected by real lifelines, without jobs."""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.members import REPLY, REQUEST
from ansible_collections.muster.training.plugins.module_utils._supervisor import hub as hub_module
from ansible_collections.muster.training.plugins.module_utils._supervisor import new_members
from ansible_collections.muster.training.plugins.module_utils._supervisor import peer as peer_module
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import plan_of_attempt
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import Hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import LifelineConnection
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline_end import (
    NewAttempt,
    Prepare,
    Start,
    Stop,
    TakeOver,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.peer import Peer
from ansible_collections.muster.training.plugins.module_utils._supervisor.successor import Successor
from ansible_collections.muster.training.plugins.plugin_utils._plan.new_node import apply_replacements, plan_of_new_node
from tests.unit import supervised

TOKEN = "t" * 64
REPORT = {
    "exit_code": -15, "reason": "", "state": "ended", "ended": None, "ranks": [], "launcher_error": "",
    "launcher_log": "", "oom_kills": 0, "limit_hits": 0, "stuck": [], "mounts": {}, "gpus": "", "health": [],
    "ended_by_us": True, "shutdown": False, "container": "", "unwritten": "", "shortened": "", "last_log": "",
    "last_lines": "", "stacks": [],
}  # fmt: skip


class Node:
    """A supervisor without processes that executes the commands of its lifeline immediately."""

    def __init__(self, directory: Path, plan: Any) -> None:
        self.plan = json.loads(json.dumps(plan))
        self.directory = directory / f"{plan['node']['name']}"
        self.directory.mkdir(parents=True)
        self.selector = selectors.DefaultSelector()
        self.journal = Journal(str(self.directory), self.plan)
        self.end: Any = (Hub if leads_run(self.plan) else Peer)(self.plan, TOKEN, self.journal, self.selector)
        self.runs = False  # whether the job is running
        self.end.open()

    def step(self) -> None:
        now = time.monotonic()
        for key, _events in self.selector.select(0):
            if isinstance(key.data, LifelineConnection):
                for message in key.data.receive():
                    self.end.on_message(key.data, message, now)
            else:
                key.data(now)
        self.end.step(now)
        for connection in self.end.connections:
            connection.flush()
        for order in self.end.take_orders():
            self.carry_out(order)

    def carry_out(self, order: Any) -> None:
        if isinstance(order, Start):
            self.runs = True
            self.end.after_start(True)
        elif isinstance(order, Stop):
            self.runs = False
            self.end.report({**REPORT, "reason": order.reason})
        elif isinstance(order, NewAttempt):
            self.plan = plan_of_attempt(self.plan, order.attempt, str(self.directory))
            self.journal.begin_attempt(self.plan)
            self.end.after_new_attempt(self.plan)
        elif isinstance(order, Prepare):
            self.end.send_prepared({"kind": "check", "number": order.request["number"], "problems": [], "store": ""})
        elif isinstance(order, TakeOver):
            peer, attempt = self.end, self.end.current
            peer.close()
            self.end = Successor(peer.plan, TOKEN, self.journal, self.selector)
            self.end.inherit(peer, attempt)
            self.end.open()

    def rank(self) -> int:
        """Return the rank of the job that runs, -1 without one."""
        return int(self.plan["node"]["attempt_rank"]) if self.runs else -1

    def close(self) -> None:
        self.end.close()
        self.selector.close()


class Network:
    """The nodes of a run."""

    def __init__(self, directory: Path, nodes: int, **options: Any) -> None:
        self.directory = directory
        defaults = {"restarts": 5, "restart_when": ("node_lost",), "lifeline_port": supervised.free_port()}
        self.run = supervised.make_run(directory, [["true"]] * nodes, **{**defaults, **options})
        self.launched = json.loads(json.dumps(self.run.plans[0]))
        self.nodes = {plan["node"]["name"]: Node(directory, plan) for plan in self.run.plans}

    def until(self, condition: Callable[[], Any]) -> Any:
        """Step all nodes until the condition holds."""
        deadline = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < deadline, condition.__doc__ or self.ranks()
            for node in list(self.nodes.values()):
                node.step()
            time.sleep(0.001)
        return condition()

    def ranks(self) -> dict[str, int]:
        return {name: node.rank() for name, node in self.nodes.items() if node.runs}

    def lose(self, *names: str) -> None:
        """Cut nodes off, as in a power failure."""
        for name in names:
            self.nodes.pop(name).close()

    def missing(self, hub: str = "node0") -> list[str]:
        return [entry["name"] for entry in self.nodes[hub].end.status().get("missing", [])]

    def request(self, name: str, hub: str = "node0", host: int = 99, gpus: int = 0) -> Any:
        """Ask the hub to take a node; return its reply."""
        address = f"{supervised.NETWORK}.{host}"
        document = {"id": f"{name}{time.monotonic()}", "name": name, "address": address, "gpus": gpus}
        path = self.nodes[hub].directory
        (path / REQUEST).write_text(json.dumps(document))

        def replied() -> Any:
            reply = json.loads((path / REPLY).read_text()) if (path / REPLY).exists() else {}
            return reply if reply.get("id") == document["id"] else None

        return self.until(replied)

    def join(self, name: str, hub: str = "node0", host: int = 99) -> int:
        """Have the run take a node, and start its supervisor."""
        rank = int(self.request(name, hub, host)["node_rank"])
        plan = self.nodes[hub].plan
        members = sorted((node["first_rank"], number) for number, node in enumerate(plan["nodes"]) if node["slots"])
        attempt = {
            "number": plan.get("attempt") or 0,
            "hub": plan.get("hub") or 0,
            "members": [number for _first_rank, number in members],
            "checkpoint": "",
        }
        launched = apply_replacements(self.launched, plan["nodes"])
        facts = {"interface": "lo", "runs_directory": str(self.directory)}
        self.nodes[name] = Node(self.directory, plan_of_new_node(launched, attempt, rank, facts))
        return rank


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Network]]:
    monkeypatch.setattr(supervised, "NETWORK", supervised.own_network(77))
    monkeypatch.setattr(hub_module, "RETURN_TIMEOUT", 0.1)
    for module in (hub_module, peer_module, new_members):
        monkeypatch.setattr(module, "RECONNECT_TIMEOUT", 0.1)
    monkeypatch.setattr(new_members, "JOIN_REQUEST_TIMEOUT", 1.0)
    monkeypatch.setattr(peer_module, "takeover_delay", lambda timeouts: 0.2)
    networks: list[Network] = []

    def make(nodes: int, **options: Any) -> Network:
        networks.append(Network(tmp_path, nodes, **options))
        return networks[-1]

    yield make
    for created in networks:
        created.lose(*created.nodes)


Make = Callable[..., Network]


def test_node_waits_as_a_spare_and_takes_the_rank_of_the_next_lost_node(network: Make) -> None:
    run = network(3, spares=1, restart_min_nodes=2)
    run.until(lambda: run.ranks() == {"node0": 0, "node1": 1})
    assert run.missing() == []
    run.lose("node1")
    run.until(lambda: run.ranks() == {"node0": 0, "node2": 1})
    assert run.missing() == ["node1"]
    assert run.join("fresh") == 1
    run.until(lambda: run.missing() == [] and run.nodes["node0"].end.nodes[1]["state"] == "spare")
    assert run.ranks() == {"node0": 0, "node2": 1}, "the attempt continues"
    assert [node["name"] for node in run.nodes["node2"].plan["nodes"]] == ["node0", "fresh", "node2"]
    run.lose("node2")
    run.until(lambda: run.ranks() == {"node0": 0, "fresh": 1})
    assert run.missing() == ["node2"]


def test_run_with_too_few_nodes_waits_and_the_new_node_takes_the_lost_rank(network: Make) -> None:
    run = network(3, restart_wait=600.0)
    run.until(lambda: len(run.ranks()) == 3)
    run.lose("node1")
    run.until(lambda: "waiting up to 10 min" in run.nodes["node0"].journal.message)
    run.join("fresh")
    run.until(lambda: run.ranks() == {"node0": 0, "fresh": 1, "node2": 2})


def test_two_nodes_suffice_if_the_first_is_present(network: Make) -> None:
    run = network(2, restart_wait=600.0)
    run.until(lambda: len(run.ranks()) == 2)
    run.lose("node1")
    run.until(run.missing)
    run.join("fresh")
    run.until(lambda: run.ranks() == {"node0": 0, "fresh": 1})


def test_run_does_not_wait_without_the_option(network: Make) -> None:
    run = network(2)
    run.until(lambda: len(run.ranks()) == 2)
    run.lose("node1")
    run.until(lambda: run.nodes["node0"].end.result_state == "failed")


def test_no_node_joins_while_a_majority_is_unreachable(network: Make) -> None:
    run = network(3, restart_wait=600.0)
    run.until(lambda: len(run.ranks()) == 3)
    run.lose("node1", "node2")
    run.until(lambda: len(run.missing()) == 2)
    assert "too few nodes can be reached" in run.request("fresh")["error"]


def test_isolated_hub_ends_instead_of_waiting(network: Make) -> None:
    """The others may continue under another node, and keep would create machines that can never join."""
    run = network(5, restart_wait=600.0)
    run.until(lambda: len(run.ranks()) == 5)
    run.lose("node2", "node3", "node4")
    hub = run.nodes["node0"].end
    run.until(lambda: hub.result_state == "failed")
    assert hub.is_cut_off and "only node0, node1 of the 5 nodes" in hub.attempts.refused


def test_requests_that_cannot_be_met_are_refused(network: Make) -> None:
    run = network(3, restart_min_nodes=2)
    run.until(lambda: len(run.ranks()) == 3)
    assert run.request("fresh")["error"] == "no node of the run is missing"
    run.lose("node1")
    run.until(run.missing)
    assert run.request("node2")["error"] == "node2 is already a node of the run"
    run.nodes["node0"].plan["nodes"][1]["hardware"] = {"gpus": 8}
    assert "fresh has 4 GPUs, but the missing nodes had more: node1 8" in run.request("fresh", gpus=4)["error"]
    assert run.request("fresh", gpus=8)["node_rank"] == 1


def test_repeated_request_gets_the_same_position_and_a_later_loss_a_new_generation(network: Make) -> None:
    run = network(3, restart_min_nodes=2)
    run.until(lambda: len(run.ranks()) == 3)
    run.lose("node1")
    run.until(run.missing)
    assert run.request("fresh")["node_rank"] == 1
    assert run.join("fresh") == 1
    assert run.nodes["node0"].plan["nodes"][1]["generation"] == 1
    run.until(lambda: not run.missing())
    run.lose("fresh")
    run.until(lambda: run.missing() == ["fresh"])
    (run.directory / "fresh").rename(run.directory / "fresh.1")
    assert run.join("fresh") == 1 and run.nodes["node0"].plan["nodes"][1]["generation"] == 2
    run.until(lambda: not run.missing())


def test_first_node_is_replaced_under_its_successor(network: Make) -> None:
    run = network(4, restart_min_nodes=3)
    run.until(lambda: len(run.ranks()) == 4)
    run.lose("node0")
    run.until(lambda: run.ranks() == {"node1": 0, "node2": 1, "node3": 2})
    run.until(lambda: run.missing("node1") == ["node0"])
    assert run.join("fresh", "node1") == 0
    run.until(lambda: not run.missing("node1"))
    run.lose("node3")
    run.until(lambda: sorted(run.ranks()) == ["fresh", "node1", "node2"] and run.ranks()["node1"] == 0)


def test_replaced_node_is_refused_when_it_returns(network: Make) -> None:
    run = network(4, spares=1, restart_min_nodes=3)
    run.until(lambda: len(run.ranks()) == 3)
    old = run.nodes["node1"].plan
    run.lose("node1")
    run.until(lambda: run.missing() == ["node1"])
    run.join("fresh")
    run.until(lambda: not run.missing())
    run.nodes["back"] = Node(run.directory, {**old, "node": {**old["node"], "name": "back"}})
    end = run.nodes["back"].end
    run.until(lambda: end.connect_error or end.connections)
    for _number in range(50):
        for node in list(run.nodes.values()):
            node.step()
        time.sleep(0.01)
    assert end.open_connection() is None and not end.admitted
    assert run.nodes["node0"].end.nodes[1]["state"] == "spare" and not run.missing()
