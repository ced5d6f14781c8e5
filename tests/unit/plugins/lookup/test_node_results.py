"""The results of calls of all nodes, from one process or from one for each node."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

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
