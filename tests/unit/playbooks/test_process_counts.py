# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of controller processes and node calls per command, which determine its duration with many nodes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.unit.node_stub import node_stubs, noted
from tests.unit.supervised import eventually, free_port, own_network
from tests.unit.two_nodes import state_of, stop_run
from tests.unit.typed import CHECKOUT, give_collection, typed

pytestmark = pytest.mark.one_core

NAMES = ["node0", "node1", "node2"]
JOB = """
import time
print("begins", flush=True)
while True:
    time.sleep(0.05)
"""


class Cost(NamedTuple):
    """The number of controller processes, of calls of the first node, and of calls of each other node."""

    processes: int
    first: int
    other_nodes: int


class Nodes:
    """Three nodes on this machine, reached by a stand-in for ssh."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        give_collection(directory)
        self.addresses = {name: f"{own_network(61)}.{number}" for number, name in enumerate(NAMES, 1)}
        hosts = {name: {"ansible_host": address} for name, address in self.addresses.items()}
        (directory / "job.py").write_text(JOB)
        settings = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "launch_python": "{{ ansible_playbook_python }}",
            "node_slots": 1,
            "launch_node_directory": f"{directory}/nodes",
            "launch_master_port": free_port(),
            "launch_lifeline_port": free_port(),
            "launch_skip": ["busy"],  # other tests also start runs on this machine
            "launch_launcher": "env",
            "launch_report": False,
            "launch_script": f"{directory}/job.py",
            **node_stubs(directory),
        }
        (directory / "machines.yml").write_text(yaml.safe_dump({"training": {"hosts": hosts, "vars": settings}}))

    def cost(self, playbook: str, *options: str) -> Cost:
        """Run a playbook and return its cost."""
        environment = {
            "ANSIBLE_CALLBACK_PLUGINS": str(CHECKOUT / "tests" / "bench" / "callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "launch_events",
            "MUSTER_LAUNCH_EVENTS": str(self.directory / "events.jsonl"),
        }
        command = ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *options]
        completed = typed(self.directory, command, **environment)
        assert completed.returncode == 0, completed.stdout
        events = [json.loads(line) for line in (self.directory / "events.jsonl").read_text().splitlines()]
        calls = Counter(noted(self.directory))
        first, *other_calls = (calls[address] for address in self.addresses.values())
        assert len(set(other_calls)) == 1, f"{playbook}: {calls}"
        return Cost(sum(event["event"] == "process" for event in events), first, other_calls[0])


# The limits of each command on three nodes. With one process per node and task, status would need 23.
LIMITS = {
    "preflight": Cost(10, 2, 1),
    "launch -e detach=true -e run_id=counted": Cost(27, 3, 2),
    "status": Cost(12, 2, 1),
    "status -e mounts=true": Cost(12, 2, 1),
    "stacks": Cost(9, 2, 1),
    "save": Cost(13, 2, 2),
    "stop": Cost(13, 3, 3),
    "runs": Cost(5, 1, 1),
    "logs -e attempt=0": Cost(18, 1, 1),
    "logs": Cost(18, 3, 2),
}


FREQUENT = [command for command in LIMITS if command.split()[0] in ("launch", "stop") or command == "status"]


@pytest.mark.parametrize(
    "commands",
    [pytest.param(FREQUENT, id="frequent"), pytest.param([*LIMITS], id="all", marks=pytest.mark.thorough)],
)
def test_no_command_costs_more_processes_or_calls_than_before(tmp_path: Path, commands: list[str]) -> None:
    nodes, costs = Nodes(tmp_path), {}
    try:
        for command in commands:
            playbook, *options = command.split()
            costs[command] = nodes.cost(playbook, *options)
            if playbook == "launch":
                eventually(lambda: state_of(tmp_path, "counted") == "running", 240)
    finally:
        stop_run(tmp_path, "counted", NAMES)
    more = {name: cost for name, cost in costs.items() if any(map(int.__gt__, cost, LIMITS[name]))}
    assert more == {}, f"more than {LIMITS}"
