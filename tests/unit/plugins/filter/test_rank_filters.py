"""The filters of the rank table and its files, through Ansible's own templating."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, is_trusted_as_template, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

FILTERS = ("from_hostfile", "hostfile", "rank_table")
HOSTS: list[dict[str, Any]] = [
    {"name": "node0.example.com", "address": "10.0.0.10", "slots": "2"},
    {"name": "node1", "address": "10.0.0.11", "slots": 4},
]
INVENTORY = """
training:
  vars:
    gpus: 4
  hosts:
    node10: {node_address: 10.0.0.10, node_slots: "{{ gpus }}"}
    node9: {node_address: 10.0.0.9, node_slots: "{{ gpus * 2 }}"}
    node11: {node_address: 10.0.0.11}
"""


def render(template: str, **variables: Any) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(template))


def error_of(template: str, **variables: Any) -> str:
    with pytest.raises(AnsibleError) as caught:
        render(template, **variables)
    return str(caught.value)


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, Any]:
    """Return groups and hostvars as available in a play."""
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(tmp_path / "hosts.yml")])
    variables = VariableManager(loader=loader, inventory=inventory)
    return {"groups": inventory.get_groups_dict(), "hostvars": HostVars(inventory, variables, loader)}


def test_rank_table_is_built_from_a_list_of_hosts() -> None:
    assert render("{{ hosts | muster.training.rank_table(rank0='node1', nnodes=2) }}", hosts=HOSTS) == [
        {"name": "node1", "address": "10.0.0.11", "slots": 4, "node_rank": 0, "first_rank": 0},
        {"name": "node0.example.com", "address": "10.0.0.10", "slots": 2, "node_rank": 1, "first_rank": 4},
    ]


def test_rank_table_is_built_from_a_group(cluster: dict[str, Any]) -> None:
    template = "{{ groups['training'] | muster.training.rank_table(hostvars, default_slots=1, order='name') }}"
    nodes = render(template, **cluster)
    assert [(node["name"], node["slots"], node["first_rank"]) for node in nodes] == [
        ("node9", 8, 0),
        ("node10", 4, 8),
        ("node11", 1, 12),
    ]


def test_group_member_without_slots_is_refused(cluster: dict[str, Any]) -> None:
    result = error_of("{{ groups['training'] | muster.training.rank_table(hostvars) }}", **cluster)
    assert "node11: the host has no slots" in result
    assert "node9" not in result


def test_host_missing_from_the_inventory_is_refused(cluster: dict[str, Any]) -> None:
    result = error_of("{{ ['node9', 'node99'] | muster.training.rank_table(hostvars) }}", **cluster)
    assert "hostvars has no host named 'node99'" in result


def test_rank_table_reports_all_errors() -> None:
    hosts = [HOSTS[0] | {"slots": 0}, HOSTS[1] | {"address": "10.0.0.10"}]
    result = error_of("{{ hosts | muster.training.rank_table(nnodes=3) }}", hosts=hosts)
    assert "These hosts do not form a valid cluster." in result
    assert "nnodes is 3, but the group has 2 hosts" in result
    assert "node0.example.com: its number of slots is 0" in result
    assert "node1: its address 10.0.0.10 is also the address of node0.example.com" in result


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("hostfile", "node0.example.com slots=2\nnode1 slots=4\n"),
        ("hostfile(use='address')", "10.0.0.10 slots=2\n10.0.0.11 slots=4\n"),
        ("hostfile('openmpi')", "node0.example.com slots=2\nnode1 slots=4\n"),
        ("hostfile('mpich')", "node0.example.com:2\nnode1:4\n"),
        ("hostfile(format='mpich', use='address')", "10.0.0.10:2\n10.0.0.11:4\n"),
        ("hostfile('etc_hosts')", "10.0.0.10 node0.example.com node0\n10.0.0.11 node1\n"),
    ],
)
def test_hostfile_is_rendered_from_hosts_or_a_rank_table(expression: str, text: str) -> None:
    assert render(f"{{{{ hosts | muster.training.{expression} }}}}", hosts=HOSTS) == text
    assert render(f"{{{{ hosts | muster.training.rank_table | muster.training.{expression} }}}}", hosts=HOSTS) == text


def test_hostfile_follows_ranks_rather_than_list_order() -> None:
    hosts = [host | {"rank": rank} for host, rank in zip(HOSTS, (1, 0), strict=True)]
    assert render("{{ hosts | muster.training.hostfile }}", hosts=hosts).startswith("node1 slots=4\n")


def test_etc_hosts_entries_need_no_slots() -> None:
    hosts = [{key: host[key] for key in ("name", "address")} for host in HOSTS]
    assert "10.0.0.11 node1\n" in render("{{ hosts | muster.training.hostfile('etc_hosts') }}", hosts=hosts)


@pytest.mark.parametrize("form", ["deepspeed", "openmpi", "mpich", "etc_hosts"])
def test_hostfile_of_an_invalid_cluster_is_refused(form: str) -> None:
    hosts = [HOSTS[0], HOSTS[1] | {"address": "127.0.1.1"}]
    assert "node1: its address 127.0.1.1 is a loopback address" in error_of(
        f"{{{{ hosts | muster.training.hostfile('{form}') }}}}", hosts=hosts
    )
    assert "Pass a list" in error_of(f"{{{{ 'node1' | muster.training.hostfile('{form}') }}}}")


def test_an_unknown_format_is_refused() -> None:
    result = error_of("{{ hosts | muster.training.hostfile('slurm') }}", hosts=HOSTS)
    assert "Unknown hostfile format 'slurm'. Use one of 'deepspeed', 'openmpi', 'mpich', 'etc_hosts'." in result


def test_from_hostfile_reads_hosts_and_refuses_bad_lines() -> None:
    assert render("{{ text | muster.training.from_hostfile }}", text="node0 slots=2\nnode1 slots=1\n") == [
        {"name": "node0", "slots": 2},
        {"name": "node1", "slots": 1},
    ]
    result = error_of("{{ text | muster.training.from_hostfile }}", text="node0 slots=2\nnode1 slots=4abc\n")
    assert "line 2: 'node1 slots=4abc': text after the slots" in result


def test_names_from_an_api_are_never_templated() -> None:
    hostile = "{{ lookup('ansible.builtin.pipe', 'touch /tmp/muster-was-here') }}"
    result = error_of("{{ hosts | muster.training.rank_table }}", hosts=[HOSTS[0] | {"name": hostile}])
    assert "{{ lookup(" in result
    nodes = render("{{ hosts | muster.training.rank_table }}", hosts=[HOSTS[0] | {"name": trust_as_template("node0")}])
    assert not is_trusted_as_template(nodes[0]["name"])


@pytest.mark.parametrize("name", FILTERS)
def test_the_examples_of_the_documentation_work(name: str, cluster: dict[str, Any], tmp_path: Path) -> None:
    plugin = importlib.import_module(f"ansible_collections.muster.training.plugins.filter.{name}")
    (tmp_path / "hostfile").write_text("node0 slots=1\n")
    cluster["groups"] = {"training": cluster["groups"]["training"][:2]}
    tasks = yaml.safe_load(plugin.EXAMPLES)
    assert tasks
    for task in tasks:
        arguments = next(value for key, value in task.items() if key.startswith("ansible.builtin."))
        templates = [value for value in arguments.values() if f"muster.training.{name}" in value]
        assert templates
        for template in templates:
            # Four nodes are requested, but only two exist.
            template = template.replace("nnodes=4", "nnodes=2").replace("'hostfile'", f"'{tmp_path / 'hostfile'}'")
            variables = {
                key: trust_as_template(value) if isinstance(value, str) else value
                for key, value in task.get("vars", {}).items()
            }
            assert render(template, **cluster, **variables)


@pytest.mark.parametrize("name", FILTERS)
def test_the_documentation_names_the_arguments_of_the_filter(name: str) -> None:
    plugin = importlib.import_module(f"ansible_collections.muster.training.plugins.filter.{name}")
    documentation = yaml.safe_load(plugin.DOCUMENTATION)
    function = plugin.FilterModule().filters()[name]
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    assert ["_input", *arguments[1:]] == list(documentation["options"])
    defaults = dict(zip(arguments[::-1], (function.__defaults__ or ())[::-1], strict=False))
    for option, what in documentation["options"].items():
        assert defaults.get(option) == what.get("default")
