# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts about a run that distinguish the possible causes of a failure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import to_list, to_mapping, to_mappings

MAX_NODES = 4096
NAME = re.compile(r"[\w.:=-]{1,64}\Z")  # name of an interface, an address or a node that may be shown inside a command


@dataclass(frozen=True)
class RunFacts:
    """The relevant data from a run's plan; empty if it is not available.

    Attributes:
        addresses: Addresses of the nodes, in order.
        interface: The network interface that muster sets for the job.
        slots: Ranks of each node.
        gpus: GPUs of each node.
        port: The port of the rendezvous.
        variables: Names of the environment variables that the user set for the job.
        rank: The rank that failed first, or None.
    """

    addresses: tuple[str, ...] = ()
    interface: str = ""
    slots: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    port: str = ""
    variables: frozenset[str] = frozenset()
    rank: int | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The fields for filling in the texts of rules."""
        return {
            "own_interface": self.interface or "INTERFACE",
            "of_interface": f" ({self.interface})" if self.interface else "",
            "first_address": self.addresses[0] if self.addresses else "ADDRESS_OF_THE_FIRST_NODE",
            "ranks_per_node": str(max(self.slots)) if self.slots else "N",
            "gpus_per_node": str(min(self.gpus)) if self.gpus else "GPUS",
        }

    def is_foreign(self, address: str) -> bool:
        """Return whether an IPv4 address belongs to none of the nodes.

        False if the nodes' addresses are unknown, or if all are loopback addresses: then the nodes share this machine,
        and may use any of its addresses.
        """
        if not self.addresses or not all(map(is_ipv4, self.addresses)):
            return False
        if all(ipaddress.IPv4Address(own).is_loopback for own in self.addresses):
            return False
        return is_ipv4(address) and address not in self.addresses

    @property
    def crowded(self) -> bool:
        """Whether a node has more ranks than GPUs."""
        return any(slots > gpus > 0 for slots, gpus in zip(self.slots, self.gpus, strict=False))


NOTHING = RunFacts()


def is_ipv4(text: str) -> bool:
    """Return whether a text is an IPv4 address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def read_facts(plan: Mapping[str, Any] | None, rank: Any = None) -> RunFacts:
    """Return the facts from a plan. The plan may have any content, because it is also read from records.

    Args:
        plan: That of the run, or None.
        rank: The rank that failed first.
    """
    if not isinstance(plan, Mapping):
        return NOTHING
    nodes = to_mappings(plan.get("nodes"), MAX_NODES)
    environment = to_mapping(plan.get("environment"))
    hardware = [node.get("hardware") for node in nodes]
    gpus = [item.get("gpus") for item in hardware if isinstance(item, Mapping)]
    slots = [node.get("slots") for node in nodes]
    addresses = [node.get("address") for node in nodes]
    return RunFacts(
        addresses=tuple(map(plain_name, addresses)) if all(map(plain_name, addresses)) else (),
        interface=plain_name(environment.get("GLOO_SOCKET_IFNAME")),
        slots=parse_counts(slots),
        gpus=parse_counts(gpus) if len(gpus) == len(nodes) else (),
        port=plain_name(environment.get("MASTER_PORT")),
        variables=frozenset(filter(None, map(plain_name, to_list(plan.get("variables"))))),
        rank=rank if is_count(rank) else None,
    )


def plain_name(value: Any) -> str:
    """Return a name if it is safe to use in a command, otherwise ""."""
    return value if isinstance(value, str) and NAME.match(value) else ""


def parse_counts(values: list[Any]) -> tuple[int, ...]:
    """Return counts, or () if one of them is invalid."""
    return tuple(int(value) for value in values) if all(map(is_count, values)) else ()


def is_count(value: Any) -> bool:
    """Return whether a value is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000
