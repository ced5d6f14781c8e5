# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the machines in the output of `tofu show -json` or `terraform show -json`.

Format: https://developer.hashicorp.com/terraform/internals/json-format (version 1.0). Attributes of the resources are
those of their providers' documentation.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
MAX_DEPTH = 32
"""Modules nested deeper than this are rejected; real configurations have only a handful of levels."""


class StateError(Exception):
    """The output cannot be used; the message explains why, with a remedy."""


@dataclass(frozen=True)
class ResourceType:
    """A resource type's attributes for each field of a node: paths such as `a.0.b`; the first one set is used."""

    name: tuple[str, ...]
    public: tuple[str, ...]
    private: tuple[str, ...]
    user: tuple[str, ...] = ()
    price: tuple[str, ...] = ()
    """The price in US dollars per hour."""


RESOURCE_TYPES = {
    "aws_instance": ResourceType(("tags.Name",), ("public_ip",), ("private_ip",)),
    "azurerm_linux_virtual_machine": ResourceType(
        ("name",), ("public_ip_address",), ("private_ip_address",), user=("admin_username",)
    ),
    "digitalocean_droplet": ResourceType(
        ("name",), ("ipv4_address",), ("ipv4_address_private",), price=("price_hourly",)
    ),
    "google_compute_instance": ResourceType(
        ("name",), ("network_interface.0.access_config.0.nat_ip",), ("network_interface.0.network_ip",)
    ),
    "hcloud_server": ResourceType(("name",), ("ipv4_address",), ("network.0.ip",)),
    "openstack_compute_instance_v2": ResourceType(("name",), ("access_ip_v4",), ("network.0.fixed_ip_v4",)),
}


@dataclass(frozen=True)
class StateMachine:
    """A machine in the state."""

    name: str
    address: str
    """The resource's address, such as `module.gpus.hcloud_server.node[0]`."""
    type: str
    variables: dict[str, Any]
    """Host variables that are part of the contract between the inventory and the playbooks."""
    values: Mapping[str, Any]
    """All attributes of the resource, some of which may be secret."""


def find_machines(document: Any) -> list[StateMachine]:
    """Return the machines in all modules, in document order.

    Raises:
        StateError: the document is not the output of `show -json`, or two machines have the same name.
    """
    root = document.get("values", {}).get("root_module") if _is_state(document) else None
    if not isinstance(root, Mapping):
        raise StateError(
            "it is not the output of `tofu show -json` or `terraform show -json` of an applied configuration. Run "
            "`tofu apply` first; the file terraform.tfstate has a different format"
        )
    machines = [make_machine(resource) for resource in _resources(root) if resource.get("type") in RESOURCE_TYPES]
    addresses: dict[str, list[str]] = {}
    for machine in machines:
        addresses.setdefault(machine.name, []).append(machine.address)
    for name, same in addresses.items():
        if len(same) > 1:
            raise StateError(f"{', '.join(same)} are all named {name}. Give each machine a unique name")
    return machines


def _is_state(document: Any) -> bool:
    """Return whether a document has the format version and values of a state."""
    return (
        isinstance(document, Mapping)
        and str(document.get("format_version", "")).startswith(("0.", "1."))
        and isinstance(document.get("values", {}), Mapping)
    )


def _resources(module: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the managed resources, without data sources, of a module and its child modules."""
    if depth > MAX_DEPTH:
        raise StateError(f"its modules are nested more than {MAX_DEPTH} levels deep")
    for resource in module.get("resources") or []:
        if isinstance(resource, Mapping) and resource.get("mode") == "managed":
            yield resource
    for child in module.get("child_modules") or []:
        if isinstance(child, Mapping):
            yield from _resources(child, depth + 1)


def make_machine(resource: Mapping[str, Any]) -> StateMachine:
    """Convert a resource to a machine."""
    values = resource.get("values")
    values = values if isinstance(values, Mapping) else {}
    known, address = RESOURCE_TYPES[resource["type"]], str(resource.get("address", ""))
    private = _address(_first(values, known.private))
    user = str(_first(values, known.user) or "")
    variables = {
        "ansible_host": _address(_first(values, known.public)) or private,
        "ansible_user": user if USER_NAME.fullmatch(user) else "",
        "node_address": private,
        "node_price_per_hour": _first(values, known.price),
        "terraform_address": address,
        "terraform_type": resource["type"],
    }
    name = host_name(str(_first(values, known.name) or address))
    variables = {key: value for key, value in variables.items() if value not in (None, "")}
    return StateMachine(name, address, resource["type"], variables, values)


def _first(values: Mapping[str, Any], paths: tuple[str, ...]) -> Any:
    """Return the first text or number at these paths, or None."""
    for path in paths:
        value: Any = values
        for part in path.split("."):
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                value = None
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":
            return value
    return None


def _address(value: Any) -> str:
    """Return a value if it is an IP address, otherwise an empty string: ssh would parse some texts as options."""
    try:
        return str(ipaddress.ip_address(value)) if isinstance(value, str) else ""
    except ValueError:
        return ""


def host_name(text: str) -> str:
    """Return a name that Ansible accepts, for example `gpu-0` for `gpu[0]`. Reserved group names are avoided."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:63] or "machine"
    return f"{name}-machine" if name in ("all", "localhost", "training", "ungrouped") else name
