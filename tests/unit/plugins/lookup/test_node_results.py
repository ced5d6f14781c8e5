"""Results of node calls, from a single process or from one process per node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

COLLECTION = Path(__file__).resolve().parents[4]
LOOKUP = re.compile(r"lookup\('muster\.training\.node_results', '(?P<name>\w+)'\)")
HOSTS = ["a", "b", "c"]
OF_A, OF_B = {"run": {"state": "running"}}, {"failed": True, "msg": "no route"}


@pytest.mark.parametrize(
    "registered",
    [
        {name: {"complete": True, "by_node": {"a": OF_A, "b": OF_B}} for name in HOSTS},
        {"a": OF_A, "b": OF_B},
    ],
    ids=["one process", "a process for each node"],
)
def test_results_have_one_form(registered: dict[str, Any]) -> None:
    hostvars = {name: {"state": registered[name]} if name in registered else {} for name in HOSTS}
    variables = {"ansible_play_hosts_all": HOSTS, "hostvars": hostvars, **hostvars["a"]}
    template = trust_as_template("{{ lookup('muster.training.node_results', 'state') }}")
    assert Templar(loader=DataLoader(), variables=variables).template(template) == {"a": OF_A, "b": OF_B, "c": None}


def test_nodes_that_were_not_called_have_no_result() -> None:
    variables = {"ansible_play_hosts_all": HOSTS, "hostvars": {name: {} for name in HOSTS}}
    template = trust_as_template("{{ lookup('muster.training.node_results', 'state') }}")
    assert Templar(loader=DataLoader(), variables=variables).template(template) == dict.fromkeys(HOSTS)


@pytest.mark.parametrize("reply", [{"complete": True}, {"complete": True, "by_node": "a"}])
def test_malformed_reply_of_a_node_is_the_result_of_that_node_only(reply: dict[str, Any]) -> None:
    hostvars = {"a": {"state": reply}, "b": {"state": OF_B}, "c": {}}
    variables = {"ansible_play_hosts_all": HOSTS, "hostvars": hostvars, **hostvars["a"]}
    template = trust_as_template("{{ lookup('muster.training.node_results', 'state') }}")
    assert Templar(loader=DataLoader(), variables=variables).template(template) == {"a": reply, "b": OF_B, "c": None}


def all_tasks(tasks: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a file, and those of its plays and blocks."""
    for task in tasks:
        yield task
        for part in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from all_tasks(task.get(part) or [])


def test_no_node_can_reply_for_the_others() -> None:
    """call_nodes removes from a node's reply the fields that hold the results of all nodes; other modules do not."""
    files = [path for folder in ("roles", "playbooks") for path in sorted((COLLECTION / folder).rglob("*.yml"))]
    names = {match["name"] for path in files for match in LOOKUP.finditer(path.read_text())}
    documents = [yaml.safe_load(path.read_text()) for path in files]
    tasks = [task for document in documents if isinstance(document, list) for task in all_tasks(document)]
    registering = [task for task in tasks if task.get("register") in names]
    assert {task["register"] for task in registering} == names != set()
    assert [task["name"] for task in registering if "muster.training.call_nodes" not in task] == []
