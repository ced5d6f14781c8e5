# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of a Paperspace account, in the planner's terms. Private to this collection.

Names are kept unchanged, since they tell which cluster owns a thing; one that is not plain text is escaped, and so
belongs to no cluster.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    Address,
    Drive,
    Machine,
    Network,
    Script,
    State,
    There,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import integer, region_code
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

_GIB = 1024**3
_STATES: dict[str, State] = {"ready": "ready", "off": "off", "stopping": "going"}  # all others count as coming


def read_account(client: Client) -> There:
    """All machines, networks, drives, scripts and fixed addresses of the account."""
    return {
        "machines": read_machines(client),
        "networks": read_networks(client),
        "drives": read_drives(client),
        "scripts": read_scripts(client),
        "addresses": read_addresses(client),
    }


def read_machines(client: Client) -> list[Machine]:
    """All machines."""
    return [machine_of(one) for one in _alive(operations.list_machines(client))]


def read_networks(client: Client) -> list[Network]:
    """All private networks."""
    return [network_of(one) for one in _alive(operations.list_networks(client))]


def read_drives(client: Client) -> list[Drive]:
    """All network drives, without their passwords."""
    return [drive_of(one) for one in _alive(operations.list_drives(client))]


def read_scripts(client: Client) -> list[Script]:
    """All startup scripts."""
    return [script_of(one) for one in _alive(operations.list_startup_scripts(client))]


def read_addresses(client: Client) -> list[Address]:
    """All fixed addresses."""
    return [address_of(one) for one in _alive(operations.list_public_ips(client))]


def _alive(items: Iterable[Any]) -> list[Mapping[str, Any]]:
    return [item for item in items if not item.get("dtDeleted")]


def machine_of(raw: Mapping[str, Any]) -> Machine:
    """One machine."""
    said = one_line(raw.get("state") or "", 40)
    total = integer(raw.get("storageTotal"))
    return {
        "id": one_line(raw["id"], 80),
        "name": name_of(raw),
        "state": _STATES.get(said, "coming"),
        "said": said,
        "machine_type": one_line(raw.get("machineType") or "", 40),
        "region": _region(raw),
        "network": one_line(raw.get("networkId") or "", 80),
        "disk_gb": round(total / _GIB) if total else None,
        "private_ip": one_line(raw.get("privateIp") or "", 45),
        "public_ip": one_line(raw.get("publicIp") or "", 45),
        "fixed_address": raw.get("publicIpType") == "static",
        "per_hour": _number(raw.get("usageRate")),
        "created": _seconds(raw.get("dtCreated")),
    }


def network_of(raw: Mapping[str, Any]) -> Network:
    """One private network."""
    return {"id": one_line(raw["id"], 80), "name": name_of(raw), "region": _region(raw)}


def drive_of(raw: Mapping[str, Any]) -> Drive:
    """One network drive. The API does not document the unit of size: above 10**6 it is taken as bytes, else as GB."""
    size = integer(raw.get("size"))
    return {
        "id": one_line(raw["id"], 80),
        "name": name_of(raw),
        "network": one_line(raw.get("networkId") or "", 80),
        "region": _region(raw),
        "size_gb": round(size / _GIB) if size and size > 10**6 else size,
        "share": one_line(raw.get("mountPoint") or "", 200).replace("\\", "/"),
        "username": one_line(raw.get("username") or "", 100),
    }


def script_of(raw: Mapping[str, Any]) -> Script:
    """One startup script."""
    machines = raw.get("assignedMachineIds")
    return {
        "id": one_line(raw["id"], 80),
        "name": name_of(raw),
        "machines": [one_line(one, 80) for one in machines] if isinstance(machines, list) else [],
    }


def address_of(raw: Mapping[str, Any]) -> Address:
    """One fixed address."""
    return {
        "ip": one_line(raw["ip"], 45),
        "region": _region(raw),
        "machine": one_line(raw.get("assignedMachineId") or "", 80),
    }


def name_of(raw: Mapping[str, Any]) -> str:
    """The exact name, or its escaped form if it is not one line of printable text."""
    name = str(raw.get("name") or "")
    return name if name == one_line(name, 200) else ascii(name)[:200]


def _region(raw: Mapping[str, Any]) -> str:
    return one_line(region_code(str(raw.get("region") or "")), 40)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _seconds(value: Any) -> float | None:
    try:
        when = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
