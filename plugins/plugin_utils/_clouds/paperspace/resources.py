# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the contents of a Paperspace account, in the planner's terms.

Names are kept unchanged, since they determine which cluster owns a resource. A name that is not plain text is escaped,
and so belongs to no cluster.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    Address,
    BootScript,
    Drive,
    Machine,
    MachineState,
    Network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import (
    parse_integer,
    region_code,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

_GIB = 1024**3
# all other states count as coming
_STATES: dict[str, MachineState] = {"ready": "ready", "off": "off", "stopping": "going"}


def read_account(client: Client) -> AccountResources:
    """Return all of the account's machines, networks, drives, scripts and fixed addresses."""
    return {
        "machines": read_machines(client),
        "networks": read_networks(client),
        "drives": read_drives(client),
        "scripts": read_scripts(client),
        "addresses": read_addresses(client),
    }


def read_machines(client: Client) -> list[Machine]:
    """Return all machines."""
    return [parse_machine(raw) for raw in _exclude_deleted(operations.list_machines(client))]


def read_networks(client: Client) -> list[Network]:
    """Return all private networks."""
    return [parse_network(raw) for raw in _exclude_deleted(operations.list_networks(client))]


def read_drives(client: Client) -> list[Drive]:
    """Return all network drives, without their passwords."""
    return [parse_drive(raw) for raw in _exclude_deleted(operations.list_drives(client))]


def read_scripts(client: Client) -> list[BootScript]:
    """Return all startup scripts."""
    return [parse_script(raw) for raw in _exclude_deleted(operations.list_startup_scripts(client))]


def read_addresses(client: Client) -> list[Address]:
    """Return all fixed addresses."""
    return [parse_address(raw) for raw in _exclude_deleted(operations.list_public_ips(client))]


def _exclude_deleted(items: Iterable[Any]) -> list[Mapping[str, Any]]:
    return [item for item in items if not item.get("dtDeleted")]


def parse_machine(raw: Mapping[str, Any]) -> Machine:
    """Parse a machine."""
    api_state = single_line(raw.get("state") or "", 40)
    total = parse_integer(raw.get("storageTotal"))
    return {
        "id": single_line(raw["id"], 80),
        "name": parse_name(raw),
        "state": _STATES.get(api_state, "coming"),
        "provider_state": api_state,
        "machine_type": single_line(raw.get("machineType") or "", 40),
        "region": _parse_region(raw),
        "network": single_line(raw.get("networkId") or "", 80),
        "disk_gb": round(total / _GIB) if total else None,
        "private_ip": single_line(raw.get("privateIp") or "", 45),
        "public_ip": single_line(raw.get("publicIp") or "", 45),
        "fixed_address": raw.get("publicIpType") == "static",
        "per_hour": _parse_number(raw.get("usageRate")),
        "created": _parse_timestamp(raw.get("dtCreated")),
    }


def parse_network(raw: Mapping[str, Any]) -> Network:
    """Parse a private network."""
    return {"id": single_line(raw["id"], 80), "name": parse_name(raw), "region": _parse_region(raw)}


def parse_drive(raw: Mapping[str, Any]) -> Drive:
    """Parse a network drive. The unit of size is undocumented: values above 10**6 are taken as bytes, others as GB."""
    size = parse_integer(raw.get("size"))
    return {
        "id": single_line(raw["id"], 80),
        "name": parse_name(raw),
        "network": single_line(raw.get("networkId") or "", 80),
        "region": _parse_region(raw),
        "size_gb": round(size / _GIB) if size and size > 10**6 else size,
        "share": single_line(raw.get("mountPoint") or "", 200).replace("\\", "/"),
        "username": single_line(raw.get("username") or "", 100),
    }


def parse_script(raw: Mapping[str, Any]) -> BootScript:
    """Parse a startup script."""
    machines = raw.get("assignedMachineIds")
    return {
        "id": single_line(raw["id"], 80),
        "name": parse_name(raw),
        "machines": [single_line(machine_id, 80) for machine_id in machines] if isinstance(machines, list) else [],
    }


def parse_address(raw: Mapping[str, Any]) -> Address:
    """Parse a fixed address."""
    return {
        "ip": single_line(raw["ip"], 45),
        "region": _parse_region(raw),
        "machine": single_line(raw.get("assignedMachineId") or "", 80),
    }


def parse_name(raw: Mapping[str, Any]) -> str:
    """Return the exact name, or an escaped form if it is not a single line of printable text."""
    name = str(raw.get("name") or "")
    return name if name == single_line(name, 200) else ascii(name)[:200]


def _parse_region(raw: Mapping[str, Any]) -> str:
    return single_line(region_code(str(raw.get("region") or "")), 40)


def _parse_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _parse_timestamp(value: Any) -> float | None:
    try:
        time = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
