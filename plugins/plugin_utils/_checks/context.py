# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The input of the checks: a job, its rank table, and the nodes' facts. Private to this collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._rank_table import Node, RankTable, ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import launcher_of

Facts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Thresholds:
    """Limits beyond which a value becomes a finding."""

    clock_skew: float = 1.0  # seconds between a node's clock and the others
    disk_gib: float = 5.0  # free where runs and checkpoints are written
    shm_gib: float = 1.0  # size of /dev/shm; containers default to 0.06, too little for NCCL and data loaders
    memlock_mib: float = 8.0  # the kernel's default since 5.16
    nofile: int = 1024  # the kernel's default


@dataclass(frozen=True)
class Code:
    """The code on the controller, which the nodes should have as well."""

    source: str = ""
    problem: str = ""  # why the source could not be read
    requirements: str = ""  # its requirements file
    required: str = ""  # the hash of the requirements
    left: str = ""  # why it was not copied to the nodes, as launch_plan's code_left

    @property
    def is_coming(self) -> bool:
        """Whether the launch itself will copy it to the nodes."""
        return self.left in ("later", "refused")


@dataclass(frozen=True)
class Case:
    """One input of the checks. `facts` holds only the nodes that answered."""

    job: Job
    table: RankTable
    facts: Facts
    names_needed: bool = False  # nodes must resolve each other's names although the launcher does not use them
    replace: bool = False  # the launch will stop muster runs on the nodes
    thresholds: Thresholds = field(default_factory=Thresholds)
    code: Code = field(default_factory=Code)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that answered, in rank order."""
        return [node for node in self.table.nodes if node.name in self.facts]

    @property
    def all_loopback(self) -> bool:
        """Whether all nodes have loopback addresses, so they are one machine without a network in between."""
        addresses = [ip_literal(node.address) for node in self.table.nodes]
        return all(address is not None and address.is_loopback for address in addresses)

    @property
    def by_names(self) -> bool:
        """Whether names must resolve correctly: the launcher uses them, or the user requires it."""
        return self.names_needed or launcher_of(self.job).uses_names

    def part(self, name: str) -> list[tuple[Node, Any]]:
        """The nodes whose facts have this part, with the part."""
        return [(node, self.facts[node.name][name]) for node in self.nodes if self.facts[node.name].get(name)]


def odd_ones(values: Mapping[str, Hashable]) -> tuple[Hashable, dict[str, Hashable]]:
    """The most common value, and {node: value} of the others. Without a majority, the first node's value counts."""
    counts = Counter(values.values())
    most = max(counts.values(), default=0)
    usual = next((value for value in values.values() if counts[value] == most), None)
    return usual, {name: value for name, value in values.items() if value != usual}


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names for a message, shortened if there are many."""
    all_names = list(names)
    shown = ", ".join(all_names[:most])
    return shown if len(all_names) <= most else f"{shown} and {len(all_names) - most} more"


def gibibytes(number: float) -> str:
    """Bytes in GiB for a message."""
    return f"{number / 2**30:.1f} GiB" if number < 100 * 2**30 else f"{number / 2**30:.0f} GiB"
