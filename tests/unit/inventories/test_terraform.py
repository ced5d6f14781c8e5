# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/terraform.yml, with states in the format of `show -json` and a program that prints one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hcl2
import pytest

from ansible_collections.muster.training.plugins.plugin_utils._cluster.terraform_state import (
    RESOURCE_TYPES,
    StateError,
    find_machines,
)
from tests.unit.inventories.listing import EXAMPLES, contract, list_training, run_inventory

TEXT = (EXAMPLES / "terraform.yml").read_text()


def resource(kind: str, name: str, /, **values: Any) -> dict[str, Any]:
    return {"address": f"{kind}.{name}", "mode": "managed", "type": kind, "values": values}


def state(*resources: dict[str, Any], **children: list[dict[str, Any]]) -> dict[str, Any]:
    modules = [{"address": f"module.{name}", "resources": members} for name, members in children.items()]
    root = {"resources": list(resources), "child_modules": modules}
    return {"format_version": "1.0", "terraform_version": "1.10.0", "values": {"root_module": root}}


HETZNER = [
    resource(
        "hcloud_server",
        f"node[{number}]",
        name=f"bert-{number}",
        ipv4_address=f"203.0.113.{number}",
        network=[{"ip": f"10.0.0.{number}"}],
        user_data="secret",
    )
    for number in (1, 2, 10)
]
MACHINES: dict[str, dict[str, Any]] = {
    "aws_instance": {"tags": {"Name": "a"}, "public_ip": "203.0.113.1", "private_ip": "10.0.0.1"},
    "azurerm_linux_virtual_machine": {
        "name": "a",
        "public_ip_address": "203.0.113.1",
        "private_ip_address": "10.0.0.1",
        "admin_username": "me",
    },
    "digitalocean_droplet": {
        "name": "a",
        "ipv4_address": "203.0.113.1",
        "ipv4_address_private": "10.0.0.1",
        "price_hourly": 23.92,
    },
    "google_compute_instance": {
        "name": "a",
        "network_interface": [{"network_ip": "10.0.0.1", "access_config": [{"nat_ip": "203.0.113.1"}]}],
    },
    "hcloud_server": {"name": "a", "ipv4_address": "203.0.113.1", "network": [{"ip": "10.0.0.1"}]},
    "openstack_compute_instance_v2": {
        "name": "a",
        "access_ip_v4": "203.0.113.1",
        "network": [{"fixed_ip_v4": "10.0.0.1"}],
    },
}


def write_program(directory: Path, text: str) -> Path:
    program = directory / "tofu"
    program.write_text(f'#!/bin/sh\n[ "$*" = "show -json -no-color" ] && {text}\n')
    program.chmod(0o700)
    return program


def test_machines_of_a_state_are_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state(*HETZNER, resource("hcloud_network", "net", name="net"))))
    program = write_program(tmp_path, "cat state.json")
    hosts = list_training(tmp_path, "terraform.yml", f"{TEXT}\nprogram: {program}\n")
    assert contract(hosts) == {
        f"bert-{number}": {
            "ansible_host": f"203.0.113.{number}",
            "ansible_user": "ubuntu",
            "node_address": f"10.0.0.{number}",
            "node_rank": rank,
        }
        for rank, number in enumerate((1, 2, 10))
    }
    assert "secret" not in json.dumps(hosts)


def test_machines_are_selected_by_address_and_expressions_read_all_attributes(tmp_path: Path) -> None:
    small = resource("aws_instance", "other", tags={"Name": "other"}, private_ip="10.1.0.1", instance_type="t3.small")
    gpu = resource("aws_instance", "gpu", private_ip="10.0.0.1", instance_type="p5.48xlarge")
    gpu["address"] = "module.gpus.aws_instance.gpu[0]"
    (tmp_path / "state.json").write_text(json.dumps(state(small, gpus=[gpu])))
    text = (
        "plugin: muster.training.terraform\nfile: state.json\ninclude: [module.gpus.*]\n"
        "compose: {node_slots: \"8 if values.instance_type == 'p5.48xlarge' else 1\"}\n"
    )
    assert contract(list_training(tmp_path, "terraform.yml", text)) == {
        "module.gpus.aws_instance.gpu-0": {
            "ansible_host": "10.0.0.1",
            "node_address": "10.0.0.1",
            "node_rank": 0,
            "node_slots": 8,
        }
    }


@pytest.mark.parametrize("kind", RESOURCE_TYPES)
def test_each_resource_type_has_its_addresses(kind: str) -> None:
    (machine,) = find_machines(state(resource(kind, "node", **MACHINES[kind])))
    assert machine.name == "a"
    assert (machine.variables["ansible_host"], machine.variables["node_address"]) == ("203.0.113.1", "10.0.0.1")
    assert machine.variables.get("ansible_user") == MACHINES[kind].get("admin_username")
    assert machine.variables.get("node_price_per_hour") == MACHINES[kind].get("price_hourly")


def test_machines_with_the_same_name_are_refused() -> None:
    with pytest.raises(StateError, match=r"aws_instance.a, aws_instance.b are all named same"):
        find_machines(state(*(resource("aws_instance", name, tags={"Name": "same"}) for name in "ab")))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("echo '{}'", "it is not the output of `tofu show -json`"),
        ('echo \'{"format_version": "1.0"}\'', "`tofu apply` first"),
        ("echo '[[[['", "is not valid JSON"),
        ("(echo 'Error: no credentials' >&2; exit 1)", "failed: Error: no credentials"),
        ("sleep 60", "did not finish within 0.5 s"),
    ],
)
def test_unusable_state_is_explained(tmp_path: Path, program: str, message: str) -> None:
    path = write_program(tmp_path, program)
    completed = run_inventory(tmp_path, "terraform.yml", f"{TEXT}\nprogram: {path}\ntimeout: 0.5\n")
    assert completed.returncode != 0
    assert message in " ".join(completed.stderr.split()), completed.stderr
    assert "Traceback" not in completed.stderr


def test_missing_program_and_file_are_explained(tmp_path: Path) -> None:
    for text, message in (
        (f"{TEXT}\nfile: missing.json\n", "missing.json cannot be read: No such file"),
        (f"{TEXT}\nprogram: /missing/tofu\n", "/missing/tofu in "),
    ):
        completed = run_inventory(tmp_path, "terraform.yml", text)
        assert completed.returncode != 0 and message in " ".join(completed.stderr.split()), completed.stderr


def test_only_addresses_and_user_names_reach_ssh() -> None:
    option = "-oProxyCommand=touch${IFS}/tmp/x"
    values = {"name": "a", "public_ip_address": option, "private_ip_address": option, "admin_username": option}
    (machine,) = find_machines(state(resource("azurerm_linux_virtual_machine", "node", **values)))
    assert set(machine.variables) == {"terraform_address", "terraform_type"}


def test_hostile_state_is_treated_as_data() -> None:
    deep: dict[str, Any] = {"resources": []}
    for _level in range(100):
        deep = {"child_modules": [deep]}
    with pytest.raises(StateError, match="nested more than"):
        find_machines({"format_version": "1.0", "values": {"root_module": deep}})
    odd_values: list[Any] = [
        None,
        [],
        "x",
        {"name": {"a": 1}},
        {"name": "training"},
        {"name": "../../x\n{{ lookup('pipe') }}"},
    ]
    for values in odd_values:
        odd = {**resource("hcloud_server", "x"), "values": values}
        (machine,) = find_machines(state(odd))
        assert set(machine.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert machine.name not in ("all", "localhost", "training", "ungrouped")


CONFIGURATIONS = sorted((EXAMPLES / "opentofu").glob("*.tf"))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=[path.stem for path in CONFIGURATIONS])
def test_configuration_creates_numbered_machines_of_a_known_type(path: Path) -> None:
    """No program available here can check it against its provider: this detects misspelled blocks and references."""
    with path.open() as stream:
        document = hcl2.load(stream)

    def unquoted(text: str) -> str:
        return text.strip('"')

    machines = [
        body
        for block in document["resource"]
        for kind, bodies in block.items()
        if unquoted(kind) in RESOURCE_TYPES
        for body in bodies.values()
    ]
    assert len(machines) == 1
    assert "var.nodes" in str(machines[0]["count"])
    assert unquoted(str(machines[0]["name"])) == "${var.cluster}-${count.index}"
    text = path.read_text()
    resources = {f"{kind}.{name}" for kind, name in re.findall(r'^resource "(\w+)" "(\w+)"', text, re.MULTILINE)}
    variables = set(re.findall(r'^variable "(\w+)"', text, re.MULTILINE))
    assert set(re.findall(r"\bvar\.(\w+)", text)) == variables
    prefixes = "|".join({name.partition("_")[0] for name in resources})
    assert set(re.findall(rf"(?<![\w\"/.])((?:{prefixes})_\w+\.\w+)", text)) <= resources


def test_each_known_type_except_ec2_has_a_configuration() -> None:
    text = "".join(path.read_text() for path in CONFIGURATIONS)
    assert [name for name in RESOURCE_TYPES if f'resource "{name}"' not in text] == ["aws_instance"]
