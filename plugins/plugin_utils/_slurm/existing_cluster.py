# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of an existing Slurm cluster, from the output of `scontrol show node --oneliner`. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._slurm.batch_script import gpu_count

FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=(\S*)")
UNKNOWN = ("", "(null)", "N/A")
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
UNUSABLE_STATES = ("DOWN", "DRAIN", "FAIL", "FUTURE", "MAINT", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN", "INVAL")


class SlurmOutputError(Exception):
    """Slurm's output cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class ClusterNode:
    """A node as Slurm describes it."""

    name: str
    address: str  # NodeAddr: an address or a name
    state: str  # state such as IDLE, MIXED+DRAIN or DOWN*
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    resources: str  # Gres
    cpus: int
    memory: int  # MiB
    reason: str  # reason why it is down or draining

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return gpu_count(self.resources)

    @property
    def is_usable(self) -> bool:
        """Whether Slurm would allocate the node to a job, now or later."""
        flags = self.state.upper().rstrip("*~#!%$@^-").split("+")
        return not self.state.endswith("*") and not any(flag in UNUSABLE_STATES for flag in flags)


def parse_nodes(text: str) -> list[ClusterNode]:
    """Return the nodes. Raise SlurmOutputError if a name is not a valid node name."""
    return [parse_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def parse_node(line: str) -> ClusterNode:
    """Return the node that a line describes."""
    fields: dict[str, str] = {}
    for name, value in FIELD.findall(line):
        fields.setdefault(name, "" if value in UNKNOWN else value)
    name = fields["NodeName"]
    address = fields.get("NodeAddr", "") or name
    if not SAFE_NAME.match(name) or not (SAFE_NAME.match(address) or is_address(address)):
        raise SlurmOutputError(f"{ascii(name)[:80]} at {ascii(address)[:80]} is not a node's name and address")
    reason = re.search(r"\bReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$", line)
    return ClusterNode(
        name=name,
        address=address,
        state=fields.get("State", ""),
        partitions=names_of(fields.get("Partitions", "")),
        features=names_of(fields.get("ActiveFeatures", "") or fields.get("AvailableFeatures", "")),
        resources=fields.get("Gres", ""),
        cpus=parse_number(fields.get("CPUTot", "")),
        memory=parse_number(fields.get("RealMemory", "")),
        reason=reason.group(1) if reason else "",
    )


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(name for name in text.split(",") if name)


def parse_number(text: str) -> int:
    """Return a number, or 0 if it is unknown."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def is_address(text: str) -> bool:
    """Return whether a string is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def parse_addresses(text: str) -> dict[str, str]:
    """Return the first address for each name, from the output of `getent ahostsv4`, where each name starts with a line
    "# NAME".

    Loopback addresses do not count: no other node reaches them.
    """
    addresses: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# "):
            name = line[2:]
            continue
        address = line.split()[0] if line.split() else ""
        if name and is_address(address) and not ipaddress.ip_address(address).is_loopback:
            addresses.setdefault(name, address)
    return addresses


def select_nodes(nodes: Iterable[ClusterNode], partition: str, include_unusable: bool) -> list[ClusterNode]:
    """Return the nodes in a partition, or all nodes if it is empty; by default, only those available to jobs."""
    return [
        node
        for node in nodes
        if (not partition or partition in node.partitions) and (include_unusable or node.is_usable)
    ]


def host_variables(node: ClusterNode, addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the host variables of a node, omitting unknown ones."""
    address = node.address if is_address(node.address) else addresses.get(node.address, "")
    variables = {
        "ansible_host": address or node.address,
        "node_address": address,
        "node_slots": node.gpus or "",
        "slurm_node": node.name,
        "slurm_state": node.state,
        "slurm_partitions": list(node.partitions),
        "slurm_features": list(node.features),
        "slurm_gres": node.resources,
    }
    return {name: value for name, value in variables.items() if value not in ("", [])}
