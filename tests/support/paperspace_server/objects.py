# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Factories of the API's objects. Keyword arguments replace fields."""

from __future__ import annotations

import datetime
import ipaddress
import re
from typing import Any, NamedTuple

Object = dict[str, Any]

REGION_NAMES = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
GIB = 1024**3

# Machines without a private network are in the shared default network.
SHARED_NETWORK = "nwshared"

_EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class MachineType(NamedTuple):
    """A machine type. gpu_gib: memory per GPU. usd: US dollars per hour."""

    gpu: str
    gpus: int
    gpu_gib: int
    cpus: int
    ram_gib: int
    usd: float


# Some of the provider's types, as documented at the end of 2025.
MACHINE_TYPES = {
    "C5": MachineType("", 0, 0, 4, 8, 0.08),
    "P4000": MachineType("Quadro P4000", 1, 8, 8, 30, 0.51),
    "P4000x2": MachineType("Quadro P4000", 2, 8, 16, 60, 1.02),
    "A4000": MachineType("Ampere A4000", 1, 16, 8, 45, 0.76),
    "A4000x2": MachineType("Ampere A4000", 2, 16, 16, 90, 1.52),
    "A5000x2": MachineType("Ampere A5000", 2, 24, 16, 90, 2.76),
    "A6000": MachineType("Ampere A6000", 1, 48, 8, 45, 1.89),
    "A6000x2": MachineType("Ampere A6000", 2, 48, 16, 90, 3.78),
    "A100-80Gx8": MachineType("Ampere A100 80G", 8, 80, 96, 720, 25.44),
    "H100x8": MachineType("Hopper H100", 8, 80, 128, 1638, 47.60),
}


def format_time(time: datetime.datetime) -> str:
    """Format a time as the API does."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03}Z"


def time_at_minute(minutes: int) -> str:
    """Return the time a number of minutes after the beginning of 2026, in the API's format."""
    return format_time(_EPOCH + datetime.timedelta(minutes=minutes))


def region_code(region: str) -> str:
    """Return a region's code: "ny2" for "East Coast (NY2)"."""
    inner = re.search(r"\((\w+)\)", region)
    return (inner[1] if inner else region).lower()


def type_fields(machine_type: str) -> Object:
    """Return the fields of a machine that its type determines."""
    kind = MACHINE_TYPES[machine_type]
    accelerators = [{"name": kind.gpu, "memory": kind.gpu_gib * GIB, "count": kind.gpus}] if kind.gpus else None
    return {
        "machineType": machine_type,
        "cpus": kind.cpus,
        "ram": kind.ram_gib * GIB,
        "accelerators": accelerators,
        "usageRate": kind.usd,
    }


def machine(number: int, **changes: Any) -> Object:
    """Return a machine with two GPUs. Machine 0 is the oldest."""
    defaults = {
        "id": f"ps{number:06x}",
        "name": f"node-{number}",
        "state": "ready",
        "os": "Ubuntu 22.04",
        "agentType": "LinuxHeadless",
        "storageTotal": 250 * GIB,
        "storageUsed": 110080,
        "region": "ny2",
        "privateIp": str(ipaddress.ip_address("10.64.0.10") + number),
        "networkId": "nw0000001",
        "publicIp": str(ipaddress.ip_address("198.18.0.10") + number),
        "publicIpType": "dynamic",
        "autoShutdownEnabled": False,
        "autoShutdownTimeout": None,
        "autoShutdownForce": False,
        "autoSnapshotEnabled": False,
        "autoSnapshotFrequency": None,
        "autoSnapshotSaveCount": None,
        "updatesPending": False,
        "restorePointEnabled": False,
        "restorePointFrequency": None,
        "restorePointSnapshotId": None,
        "storageRate": 0.0104,
        "dtCreated": time_at_minute(number),
        "dtModified": time_at_minute(number + 1),
        "dtDeleted": None,
        "reservation": None,
        **type_fields("A6000x2"),
    }
    unknown = set(changes) - set(defaults)
    if unknown:
        raise ValueError(f"a machine has no field {', '.join(sorted(unknown))}")
    return {**defaults, **changes}


def network(number: int, **changes: Any) -> Object:
    """Return a private network."""
    return {
        "id": f"nw{number:07x}",
        "name": f"net-{number}",
        "region": "ny2",
        "network": str(ipaddress.ip_address("10.64.0.0") + 256 * (number - 1)),
        "netmask": "255.255.255.0",
        "dtCreated": time_at_minute(number),
        **changes,
    }


def drive(number: int, **changes: Any) -> Object:
    """Return a network drive of 250 GB."""
    return {
        "id": f"RJ{number:010X}",
        "name": f"drive-{number}",
        "region": "ny2",
        "networkId": "nw0000001",
        "size": 250 * GIB,
        "mountPoint": rf"\\10.64.0.2\sdv{number:07x}",
        "username": f"u{number:07x}",
        "password": f"drive password {number}",
        "dtCreated": time_at_minute(number),
        **changes,
    }


def os_template(template_id: str, name: str, *machine_types: str, **changes: Any) -> Object:
    """Return one of the provider's templates, for some machine types (default: all)."""
    return {
        "id": template_id,
        "name": name,
        "agentType": "LinuxHeadless",
        "operatingSystemLabel": name,
        "defaultSizeGb": 50,
        "availableMachineTypes": [
            {"machineTypeLabel": label, "isAvailable": label in machine_types or not machine_types}
            for label in MACHINE_TYPES
        ],
        "dtCreated": time_at_minute(0),
        **changes,
    }


def custom_template(number: int, **changes: Any) -> Object:
    """Return a team's own template."""
    template = os_template(f"tc{number:06x}", f"template-{number}", dtCreated=time_at_minute(number))
    return {**template, "region": "ny2", "defaultSizeGb": 250, "parentMachineId": f"ps{number:06x}", **changes}


def public_ip(address: str, **changes: Any) -> Object:
    """Return an unassigned static address."""
    return {"ip": address, "region": "ny2", "dtCreated": time_at_minute(0), **changes}


def startup_script(number: int, **changes: Any) -> Object:
    """Return a startup script, without its text."""
    return {
        "id": f"ss{number:06x}",
        "name": f"script-{number}",
        "description": None,
        "isEnabled": True,
        "isRunOnce": False,
        "assignedMachineIds": [],
        "dtCreated": time_at_minute(number),
        "dtDeleted": None,
        **changes,
    }


def snapshot(number: int, **changes: Any) -> Object:
    """Return a snapshot of machine 0."""
    defaults = {"id": f"sl{number:06x}", "name": f"snapshot-{number}", "machineId": "ps000000", "isAutoSnapshot": False}
    return {**defaults, **changes}


# The provider's templates, available to every account.
OS_TEMPLATES = [
    os_template("twnlo3zj", "ML-in-a-Box", "P4000", "P4000x2", "A4000", "A4000x2", "A5000x2", "A6000", "A6000x2"),
    os_template("t7vp562h", "ML-in-a-Box", "H100x8"),
    os_template("t0nspur5", "Ubuntu 22.04 Server"),
]
