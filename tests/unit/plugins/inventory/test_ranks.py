"""The inventory plugin that ranks the hosts of a group, with real sources and Ansible's commands."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible.template import is_trusted_as_template
from ansible.utils.collection_loader import AnsibleCollectionConfig

CHECKOUT = Path(__file__).resolve().parents[4]
RANK_VARIABLES = ("node_rank", "node_address", "node_slots")
STATIC = """
training:
  hosts:
    node10: {node_address: 10.0.0.10, node_slots: 4, private: 10.1.0.10, label: "2"}
    node9: {node_address: 10.0.0.9, node_slots: "8", private: 10.1.0.9, label: "0"}
    node8: {ansible_host: 10.0.0.8, private: 10.1.0.8, label: "1"}
ungrouped:
  hosts:
    login: {ansible_host: 10.0.0.1}
"""


class Sources:
    """A directory of inventory sources."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str) -> str:
        """Write an inventory source; return its path."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def ranks(self, name: str = "ranks.yml", **options: Any) -> str:
        """Write a source for the plugin; return its path."""
        return self.write(name, yaml.safe_dump({"plugin": "muster.training.ranks", **options}))


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setattr("ansible.constants.INVENTORY_ANY_UNPARSED_IS_FAILED", True)
    return Sources(tmp_path)


def hosts_of(*paths: str) -> dict[str, dict[str, Any]]:
    """Return the rank variables of each host in the inventory."""
    inventory = InventoryManager(loader=DataLoader(), sources=list(paths))
    return {
        host.name: {name: host.get_vars()[name] for name in RANK_VARIABLES if name in host.get_vars()}
        for host in inventory.get_hosts()
    }


def ranks_of(*paths: str) -> dict[str, int]:
    return {name: variables["node_rank"] for name, variables in hosts_of(*paths).items() if "node_rank" in variables}


def error_of(before: list[str], path: str) -> str:
    """Return the plugin's error for a file that follows these sources."""
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=before)
    with pytest.raises(AnsibleParserError) as excinfo:
        inventory_loader.get("muster.training.ranks").parse(inventory._inventory, loader, path)
    for line in str(excinfo.value).split("\n"):
        assert line.isprintable()
    return str(excinfo.value)


# --- Settings ---------------------------------------------------------------------------------------------------------


def test_defaults_set_rank_address_and_slots(sources: Sources) -> None:
    result = hosts_of(sources.write("hosts.yml", STATIC), sources.ranks())
    assert result == {
        "node10": {"node_rank": 0, "node_address": "10.0.0.10", "node_slots": 4},
        "node9": {"node_rank": 1, "node_address": "10.0.0.9", "node_slots": 8},
        "node8": {"node_rank": 2, "node_address": "10.0.0.8"},
        "login": {},
    }


def test_host_named_by_its_address_needs_no_variables(sources: Sources) -> None:
    result = hosts_of(sources.write("hosts.ini", "[training]\n10.0.0.2\n10.0.0.1\n"), sources.ranks())
    assert result["10.0.0.1"] == {"node_rank": 1, "node_address": "10.0.0.1"}


def test_expressions_set_rank_address_and_slots(sources: Sources) -> None:
    ranks = sources.ranks(
        address="private", slots="2 * (node_slots | int) if node_slots is defined else 1", rank="label"
    )
    result = hosts_of(sources.write("hosts.yml", STATIC), ranks)
    assert result["node8"] == {"node_rank": 1, "node_address": "10.1.0.8", "node_slots": 1}
    assert result["node9"] == {"node_rank": 0, "node_address": "10.1.0.9", "node_slots": 16}


def test_variables_that_are_templates_are_rendered(sources: Sources) -> None:
    text = "training: {vars: {net: 10.5.0}, hosts: {a: {node_address: '{{ net }}.1', node_slots: '{{ 2 + 2 }}'}}}"
    assert hosts_of(sources.write("hosts.yml", text), sources.ranks()) == {
        "a": {"node_rank": 0, "node_address": "10.5.0.1", "node_slots": 4}
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"order": "name"}, ["node8", "node9", "node10"]),
        ({"rank0": "node8"}, ["node8", "node10", "node9"]),
        ({"rank": "label"}, ["node9", "node8", "node10"]),
        ({"order_by": "label"}, ["node9", "node8", "node10"]),
        ({"order_by": "inventory_hostname if node_slots is defined else none"}, ["node9", "node10", "node8"]),
        ({"order_by": "label", "order": "name"}, ["node8", "node9", "node10"]),
        ({"rank": "label", "rank0": "node10"}, ["node10", "node9", "node8"]),
        ({"topology": "{'node8': 'a', 'node9': 'b', 'node10': 'a'}[inventory_hostname]"}, ["node10", "node8", "node9"]),
        ({"topology": "['x', label]"}, ["node10", "node9", "node8"]),
        (
            {"topology": "'s/a' if label == '1' else 's/b'", "order": "name"},
            ["node8", "node9", "node10"],
        ),
        (
            {"topology": "{'node8': 'a', 'node9': 'b', 'node10': 'a'}[inventory_hostname]", "rank0": "node9"},
            ["node9", "node10", "node8"],
        ),
        ({"topology": "label", "rank": "label"}, ["node9", "node8", "node10"]),
        ({"rank": "nothing.of_that_name"}, ["node10", "node9", "node8"]),
    ],
)
def test_options_set_the_order_of_ranks(sources: Sources, options: dict[str, str], expected: list[str]) -> None:
    ranks = ranks_of(sources.write("hosts.yml", STATIC), sources.ranks(**options))
    assert sorted(ranks, key=ranks.__getitem__) == expected


def test_rack_of_a_host_is_used_without_an_option(sources: Sources) -> None:
    racks = {"a": 7, "b": 8, "c": 7, "d": 8}
    hosts = {
        name: {"ansible_host": f"10.0.0.{number}", "node_rack": rack}
        for number, (name, rack) in enumerate(racks.items(), 1)
    }
    source = sources.write("hosts.yml", yaml.safe_dump({"training": {"hosts": hosts}}))
    assert ranks_of(source, sources.ranks()) == {"a": 0, "c": 1, "b": 2, "d": 3}
    assert ranks_of(source, sources.ranks(topology="none")) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_wrong_topology_is_an_error_that_names_the_host(sources: Sources) -> None:
    text = error_of([sources.write("hosts.yml", STATIC)], sources.ranks(topology="{'rack': label}"))
    assert "node10: its topology is" in text and "expected a name such as rack7" in text


def test_manually_set_ranks_are_kept(sources: Sources) -> None:
    text = "training: {hosts: {a: {ansible_host: 10.0.0.1, node_rank: 1}, b: {ansible_host: 10.0.0.2, node_rank: 0}}}"
    hosts = sources.write("hosts.yml", text)
    assert ranks_of(hosts, sources.ranks()) == {"a": 1, "b": 0}
    assert ranks_of(hosts, sources.ranks(), sources.ranks("again-ranks.yaml")) == {"a": 1, "b": 0}


def test_hosts_of_child_groups_belong_to_the_group(sources: Sources) -> None:
    hosts = sources.write(
        "hosts.ini", "[east]\na ansible_host=10.0.0.1\n[west]\nb ansible_host=10.0.0.2\n[gpu:children]\nwest\n"
    )
    assert ranks_of(hosts, sources.ranks(group="gpu")) == {"b": 0}


def test_group_vars_and_host_vars_are_read_with_the_usual_precedence(sources: Sources) -> None:
    hosts = sources.write("hosts.yml", "training: {hosts: {a: {}, b: {node_slots: 2}, c: {}}}")
    sources.write("group_vars/all.yml", "node_slots: 9\nprefix: 10.9.9\n")
    sources.write("group_vars/training.yml", "node_slots: 4\nprefix: 10.7.0\n")
    sources.write("host_vars/a.yml", "number: 1\nnode_slots: 1\n")
    sources.write("host_vars/b.yml", "number: 2\n")
    sources.write("host_vars/c.yml", "number: 3\n")
    assert hosts_of(hosts, sources.ranks(address="prefix ~ '.' ~ number")) == {
        "a": {"node_rank": 0, "node_address": "10.7.0.1", "node_slots": 1},
        "b": {"node_rank": 1, "node_address": "10.7.0.2", "node_slots": 2},
        "c": {"node_rank": 2, "node_address": "10.7.0.3", "node_slots": 4},
    }


CONSTRUCTED = """
plugin: ansible.builtin.constructed
strict: true
compose:
  node_slots: gpus * 2
groups:
  training: gpus is defined and gpus > 0
"""


def test_ranks_are_set_in_a_group_made_by_constructed(sources: Sources) -> None:
    hosts = sources.write(
        "hosts.yml",
        "all: {hosts: {a: {ansible_host: 10.0.0.1, gpus: 0}, b: {ansible_host: 10.0.0.2, gpus: 2}, "
        "c: {ansible_host: 10.0.0.3, gpus: 4}}}",
    )
    result = hosts_of(hosts, sources.write("groups.yml", CONSTRUCTED), sources.ranks())
    assert (result["b"]["node_rank"], result["b"]["node_slots"]) == (0, 4)
    assert (result["c"]["node_rank"], result["c"]["node_slots"]) == (1, 8)
    assert "node_rank" not in result["a"]


def test_directory_is_read_in_order_of_file_names(sources: Sources) -> None:
    sources.write("10_hosts.yml", STATIC)
    sources.ranks("99_ranks.yml", order="name")
    assert ranks_of(str(sources.directory)) == {"node8": 0, "node9": 1, "node10": 2}


def test_api_values_are_never_rendered_as_templates(sources: Sources, tmp_path: Path) -> None:
    """Values that a cloud's inventory plugin sets are untrusted; a template among them must not be rendered."""
    trace = tmp_path / "trace"
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[sources.write("hosts.yml", STATIC)])
    host = inventory.get_host("node8")
    host.set_variable("ansible_host", "{{ lookup('ansible.builtin.pipe', 'touch " + str(trace) + "') }}\x1b[2J")
    with pytest.raises(AnsibleParserError) as excinfo:
        inventory_loader.get("muster.training.ranks").parse(inventory._inventory, loader, sources.ranks())
    assert "node8: its address \"{{ lookup('ansible.builtin.pipe'" in str(excinfo.value)
    assert "\x1b" not in str(excinfo.value)
    assert not trace.exists()

    host.set_variable("ansible_host", "10.0.0.8")
    inventory_loader.get("muster.training.ranks").parse(inventory._inventory, loader, sources.ranks())
    assert host.get_vars()["node_address"] == "10.0.0.8"
    assert not is_trusted_as_template(host.get_vars()["node_address"])


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_unknown_group_is_refused(sources: Sources) -> None:
    result = error_of([sources.write("hosts.yml", STATIC)], sources.ranks(group="trainning"))
    assert "the group 'trainning' does not exist" in result
    assert "pass this file last" in result


def test_empty_group_is_refused(sources: Sources) -> None:
    result = error_of([sources.write("hosts.yml", "training: {}")], sources.ranks())
    assert "the group 'training' is empty" in result


def test_cloud_inventory_without_machines_is_accepted(sources: Sources) -> None:
    """Otherwise, nothing could be provisioned: provision.yml reads the whole inventory."""
    manager = InventoryManager(loader=DataLoader(), sources=[sources.write("aws_ec2.yml", "all: {}"), sources.ranks()])
    assert manager.list_hosts() == []


def test_ranks_file_before_its_hosts_in_a_directory_fails(sources: Sources, capfd: pytest.CaptureFixture[str]) -> None:
    sources.ranks("10_ranks.yml")
    sources.write("hosts.yml", STATIC)
    with pytest.raises(AnsibleError, match="Completely failed to parse inventory source .*10_ranks.yml"):
        hosts_of(str(sources.directory))


def test_invalid_cluster_is_refused_with_all_errors(sources: Sources) -> None:
    hosts = sources.write(
        "hosts.yml",
        """
        training:
          hosts:
            a: {ansible_host: 10.0.0.1, node_slots: 0}
            b: {ansible_host: 10.0.0.1}
            c: {ansible_host: gpu.example.com}
            d: {}
            e: {ansible_host: 127.0.0.1, node_rank: 0}
        """,
    )
    result = error_of([hosts], sources.ranks(rank0="z"))
    for line in [
        "muster.training.ranks: the hosts do not form a valid cluster.",
        "rank0 is 'z', which is not in the group",
        "a: its number of slots is 0",
        "b: its address 10.0.0.1 is also the address of a",
        "c: its address 'gpu.example.com' is a name",
        "d: its address 'd' is a name",
        "e: its address 127.0.0.1 is a loopback address",
        "1 of 5 hosts have a node_rank, but not a, b, c and 1 more",
    ]:
        assert line in result
    assert "b: the host has no slots" not in result


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ({"address": "privat"}, "node9: the expression in address fails: 'privat' is undefined"),
        ({"address": "private[0"}, "node9: the expression in address fails: Syntax error"),
        ({"slots": "label / 2"}, "node9: the expression in slots fails: "),
        ({"slots": "gpus", "strict": True}, "node9: the expression in slots fails: 'gpus' is undefined"),
        ({"rank": "tags.rank", "strict": True}, "node9: the expression in rank fails: 'tags' is undefined"),
        ({"slots": "'many'"}, "node9: its number of slots is 'many'"),
        ({"rank": "label ~ 'th'"}, "node9: its node_rank is '0th'"),
    ],
)
def test_error_of_a_failing_expression_names_each_host(sources: Sources, options: dict[str, Any], result: str) -> None:
    message = error_of([sources.write("hosts.yml", STATIC)], sources.ranks(**options))
    assert result in message
    assert "node8: " in message
    assert "node10: " in message


def test_unknown_options_and_values_are_refused(sources: Sources) -> None:
    result = error_of([sources.write("hosts.yml", STATIC)], sources.ranks(rank_0="node9", sluts=4))
    assert (
        "unknown options: rank_0, sluts. Valid options: address, group, order, order_by, plugin, rank, rank0, slots, "
        "strict" in result
    )
    with pytest.raises(AnsibleError):
        hosts_of(sources.write("hosts.yml", STATIC), sources.ranks(order="random"))


@pytest.mark.parametrize("name", ["order.yml", "ranks.json", "ranks.yml.bak"])
def test_files_with_other_names_are_ignored(sources: Sources, name: str) -> None:
    assert not inventory_loader.get("muster.training.ranks").verify_file(sources.ranks(name))


# --- Usage ------------------------------------------------------------------------------------------------------------


def ansible_inventory(*arguments: str) -> subprocess.CompletedProcess[str]:
    collections = os.pathsep.join(AnsibleCollectionConfig.collection_paths)
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": collections,
    }
    command = [sys.executable, "-m", "ansible", "inventory", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=CHECKOUT, check=False)


def test_ansible_inventory_reads_the_example_inventories() -> None:
    sources = ["-i", "inventories/static.yml", "-i", "inventories/ranks.yml"]
    result = ansible_inventory(*sources, "--host", "node1")
    assert result.returncode == 0, result.stderr
    variables = json.loads(result.stdout)
    assert (variables["node_rank"], variables["node_address"]) == (1, "10.0.0.11")
    assert result.stderr == ""


def test_ansible_inventory_fails_without_a_traceback(sources: Sources) -> None:
    hosts = sources.write("hosts.yml", "training: {hosts: {a: {ansible_host: 10.0.0.1}, b: {ansible_host: 10.0.0.1}}}")
    result = ansible_inventory("-i", hosts, "-i", sources.ranks(), "--host", "a")
    assert result.returncode != 0
    assert "b: its address 10.0.0.1 is also the address of a;" in result.stderr
    assert "Traceback" not in result.stderr


def test_commented_options_of_the_example_are_valid(sources: Sources) -> None:
    text = (CHECKOUT / "inventories" / "ranks.yml").read_text()
    options = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ") and ": " in line]
    options = [line for line in options if line.split(":")[0].isidentifier() or line.startswith("rank0")]
    assert len(options) == 8
    hosts = sources.write(
        "hosts.yml",
        "training: {hosts: {node0: {private_ip_address: 10.0.0.1, gpu_count: 8, tags: {rank: 1}},"
        " node1: {private_ip_address: 10.0.0.2, gpu_count: 4, tags: {rank: 0}}}}",
    )
    ranks = sources.write("ranks.yml", "\n".join(["plugin: muster.training.ranks", *options]))
    assert hosts_of(hosts, ranks)["node1"] == {"node_rank": 0, "node_address": "10.0.0.2", "node_slots": 4}


def test_the_examples_of_the_documentation_work(sources: Sources) -> None:
    hosts = sources.write(
        "hosts.yml",
        """
        training:
          hosts:
            node7: {node_address: 10.0.0.7, private_ip_address: 10.1.0.7, instance_type: g5.12xlarge, tags: {rank: 1}}
            node8: {node_address: 10.0.0.8, private_ip_address: 10.1.0.8, instance_type: g5.xlarge, tags: {rank: 0}}
        aws_ec2:
          children: {training: {}}
        """,
    )
    plugin = importlib.import_module("ansible_collections.muster.training.plugins.inventory.ranks")
    result = [
        hosts_of(hosts, sources.write("ranks.yml", yaml.safe_dump(example)))["node7"]
        for example in yaml.safe_load_all(plugin.EXAMPLES)
    ]
    assert result == [
        {"node_rank": 0, "node_address": "10.0.0.7"},
        {"node_rank": 0, "node_address": "10.1.0.7", "node_slots": 4},
        {"node_rank": 0, "node_address": "10.0.0.7"},
        {"node_rank": 1, "node_address": "10.0.0.7"},
    ]
