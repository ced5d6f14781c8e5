# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run's machines and their software, kept in plan.json because the machines may not exist later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.module_utils._run.documents import (
    GitCheckout,
    Hardware,
    MachineIdentity,
    RunMachine,
    Software,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import CURRENCY
from ansible_collections.muster.training.plugins.plugin_utils._record.machine_identity import summarize_identity


class RunMachines(TypedDict):
    """The data in plan.json on all machines of a run."""

    nodes: dict[str, RunMachine]  # machines by node name
    code: GitCheckout | None  # checkout on rank 0's node; None if the job does not start in a checkout
    currency: str


UNKNOWN_MACHINE: RunMachine = {"identity": None, "hardware": None, "software": None, "price_per_hour": None}
UNKNOWN_MACHINES: RunMachines = {"nodes": {}, "code": None, "currency": CURRENCY}


def extract_hardware(facts: Mapping[str, Any]) -> Hardware | None:
    """Return the GPUs in a node's facts, or None if they were not requested."""
    gpus = facts.get("gpus")
    if gpus is None:
        return None
    devices = gpus.get("devices") or []
    memory = [device["memory_mib"] for device in devices if device.get("memory_mib")]
    drivers = [device["driver"] for device in devices if device.get("driver")]
    return {
        "gpu": ", ".join(dict.fromkeys(device["name"] for device in devices)),
        "gpus": gpus["count"],
        "memory_mib": min(memory, default=None),
        "driver": next(iter(drivers), (gpus.get("driver") or {}).get("loaded")),
    }


def extract_identity(facts: Mapping[str, Any]) -> MachineIdentity | None:
    """Return the machine's identity from a node's facts, or None if it was not read."""
    health = facts.get("health")
    return None if health is None else MachineIdentity(**summarize_identity(health))  # type: ignore[typeddict-item]


def extract_software(facts: Mapping[str, Any]) -> Software | None:
    """Return the software in the job's interpreter from a node's facts, or None if it was not read."""
    software = facts.get("software")
    if software is None:
        return None
    return {
        "python": software.get("python"),
        "torch": (software.get("packages") or {}).get("torch"),
        "cuda": software.get("cuda"),
    }


def describe_machines(
    facts: Mapping[str, Mapping[str, Any]], prices: Mapping[str, float | None], master: str, currency: str, image: bool
) -> RunMachines:
    """Describe the machines of a run.

    Args:
        facts: those of each node, by name.
        prices: those of each node, by name.
        master: name of rank 0's node.
        currency: that of the prices.
        image: whether the job runs in an image, whose software was not read.
    """
    return {
        "nodes": {
            name: {
                "identity": extract_identity(node_facts),
                "hardware": extract_hardware(node_facts),
                "software": None if image else extract_software(node_facts),
                "price_per_hour": prices.get(name),
            }
            for name, node_facts in facts.items()
        },
        "code": facts[master].get("checkout"),
        "currency": currency,
    }
