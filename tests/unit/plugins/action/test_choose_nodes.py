"""The nodes of a run are chosen from the inventory group."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.action.choose_nodes import add_spares, choose, master_candidates
from tests.unit.typed import give_collection, typed


def host(number: int, **more: Any) -> dict[str, Any]:
    return {"node_address": f"10.0.0.{number}", "node_slots": 8, **more}


HOSTS = {"a": host(1), "b": host(2), "c": host(3)}
GROUPS = {"training": ["a", "b", "c"], "all": ["a", "b", "c", "d"]}


def test_probe_token_is_in_a_private_file_and_not_in_output(tmp_path: Path) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text("training: {hosts: {a: {node_address: 10.0.0.1}}}\n")
    (tmp_path / "play.yml").write_text(
        "- hosts: localhost\n"
        "  gather_facts: false\n"
        "  tasks:\n"
        "    - muster.training.choose_nodes:\n"
        "      register: chosen\n"
        "    - ansible.builtin.shell: stat -c 'mode %a' {{ chosen.probe.token_file }};"
        " sed 's/[0-9a-f]\\{32\\}/read/' {{ chosen.probe.token_file }}\n"
    )
    completed = typed(tmp_path, ["ansible-playbook", "play.yml", "-i", "machines.yml", "-vvv"])
    assert completed.returncode == 0 and "mode 600" in completed.stdout and "read" in completed.stdout, completed.stdout
    assert not re.search(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", completed.stdout), completed.stdout
    assert not list(tmp_path.rglob("muster-probe-*")), "it is left"


def names(nnodes: object = None, chosen: list[str] | None = None, hosts: dict[str, Any] | None = None) -> list[str]:
    return [node["name"] for node in choose("training", GROUPS, hosts or HOSTS, nnodes, chosen or [])]


def refusal(nnodes: object = None, chosen: list[str] | None = None, hosts: dict[str, Any] | None = None) -> str:
    with pytest.raises(AnsibleActionFail) as excinfo:
        names(nnodes, chosen, hosts)
    return str(excinfo.value.message)


@pytest.mark.parametrize(
    ("nnodes", "expected"),
    [(None, "abc"), ("", "abc"), (1, "a"), ("2", "ab"), (3, "abc"), ("1:2", "ab"), ("3:3", "abc")],
)
def test_first_nodes_of_group_are_chosen(nnodes: object, expected: str) -> None:
    assert names(nnodes) == list(expected)


@pytest.mark.parametrize(
    ("nnodes", "spares", "number"), [(2, 1, 3), ("2", 1, 3), (2, 0, 2), ("", 1, ""), (None, 1, None), ("x", 1, "x")]
)
def test_spares_are_taken_in_addition(nnodes: object, spares: int, number: object) -> None:
    assert add_spares(nnodes, spares) == number


def test_node_rank_decides_the_order() -> None:
    ranked = {"a": host(1, node_rank=2), "b": host(2, node_rank="0"), "c": host(3, node_rank=1)}
    assert names(2, hosts=ranked) == ["b", "c"]
    assert names(None, ["a", "c"], ranked) == ["c", "a"]


def test_named_nodes_keep_the_order_of_the_group() -> None:
    assert names(None, ["c", "a"]) == ["a", "c"]
    assert names(1, ["c", "b"]) == ["b"]


def test_each_node_has_address_and_slots_from_inventory() -> None:
    hosts = {"a": host(1), "b": {"ansible_host": "10.0.0.2", "node_slots": "4"}, "c": {"node_address": "10.0.0.3"}}
    assert choose("training", GROUPS, hosts, None, []) == [
        {"name": "a", "address": "10.0.0.1", "slots": 8},
        {"name": "b", "address": "10.0.0.2", "slots": "4"},
        {"name": "c", "address": "10.0.0.3", "slots": None},
    ]


def test_node_rank_is_returned_only_when_inventory_sets_it() -> None:
    ranked = {"a": host(1, node_rank=2), "b": host(2, node_rank="0"), "c": host(3, node_rank=1)}
    nodes = choose("training", GROUPS, ranked, None, ["a", "c"])
    assert [(node["name"], node["node_rank"]) for node in nodes] == [("c", 0), ("a", 1)]
    assert all("node_rank" not in node for node in choose("training", GROUPS, HOSTS, None, []))


def test_rank_0_candidates_are_first_node_and_first_address_as_text() -> None:
    nodes = choose("training", GROUPS, {"a": host(9), "b": host(30), "c": host(4)}, None, [])
    assert master_candidates(nodes) == {"a", "b"}  # compared as strings: 10.0.0.30 comes before 10.0.0.9
    assert master_candidates(nodes[2:]) == {"c"}


@pytest.mark.parametrize("nnodes", [0, "0", "two", -1, True, [], {"a": 1}])
def test_invalid_nnodes_is_refused(nnodes: object) -> None:
    assert "use a number of nodes, or MIN:MAX" in refusal(nnodes)
    assert refusal("4:2").endswith("the minimum 4 is greater than the maximum 2. Use MIN:MAX, such as 2:4")


def test_more_nodes_than_available_is_refused() -> None:
    output = refusal(4)
    assert output.startswith("the group 'training' is not a valid cluster:\n")
    assert "4" in output and "3" in output
    assert "3" in refusal("2:4")
    assert "is not a valid cluster" in refusal(3, ["a", "b"])


def test_nodes_outside_the_group_are_refused() -> None:
    assert refusal(None, ["a", "d", "x"]) == "nodes contains d, x, but the group 'training' has only a, b, c"


def test_group_without_hosts_is_refused() -> None:
    none: list[dict[str, list[str]]] = [{}, {"training": []}]
    for groups in none:
        with pytest.raises(AnsibleActionFail, match="the group 'training' has no hosts") as excinfo:
            choose("training", groups, HOSTS, None, [])
        assert "ansible-inventory --graph" in str(excinfo.value.message)


@pytest.mark.parametrize(
    ("groups", "expected_text"),
    [
        (
            {"all": ["a"], "gpus": ["a"]},
            "has the group gpus: rename yours, or choose it with -e launch_group=gpus",
        ),
        ({"all": ["a"], "x": ["a"], "gpus": ["a"], "none": []}, "has the groups gpus, x: .* -e launch_group=NAME"),
    ],
)
def test_empty_group_error_suggests_other_groups(groups: dict[str, list[str]], expected_text: str) -> None:
    with pytest.raises(AnsibleActionFail, match=f"the group 'training' has no hosts.* The inventory {expected_text}"):
        choose("training", groups, HOSTS, None, [])


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        ({"node_address": "10.0.0.1"}, "10.0.0.1 is also the address of a"),
        ({"node_address": "127.0.0.1"}, "loopback"),
        ({"node_address": ""}, "the host has no address"),
        ({"node_address": "node-b"}, "is a name"),
        ({"node_slots": 0}, "its number of slots is 0"),
        ({"node_slots": "many"}, "its number of slots is 'many'"),
        ({"node_rank": 0}, "1 of 3 hosts have a node_rank"),
    ],
)
def test_invalid_host_variables_are_named(change: dict[str, Any], expected_text: str) -> None:
    output = refusal(hosts={**HOSTS, "b": {**host(2), **change}})
    assert expected_text in output and "; expected " in output


def test_all_invalid_hosts_are_reported_at_once() -> None:
    output = refusal(hosts={"a": host(1, node_slots=0), "b": host(1), "c": host(3, node_address="0.0.0.0")})
    assert len(output.splitlines()) == 4


@given(st.integers(1, 3), st.permutations("abc"))
def test_any_permutation_of_node_ranks_is_followed(nnodes: int, order: list[str]) -> None:
    hosts = {name: host(number, node_rank=order.index(name)) for number, name in enumerate("abc", 1)}
    assert names(nnodes, hosts=hosts) == order[:nnodes]
