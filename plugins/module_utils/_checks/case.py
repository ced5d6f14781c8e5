# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the checks look at: a job, its rank table, and the facts of the nodes. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Hashable, Iterable, Mapping

from ansible_collections.muster.training.plugins.module_utils._job import Job
from ansible_collections.muster.training.plugins.module_utils._plan import launcher_of
from ansible_collections.muster.training.plugins.module_utils._rank_table import Node, RankTable, ip_literal

Facts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Thresholds:
    """The numbers at which something becomes a finding."""

    clock_skew: float = 1.0  # seconds between a node and the others
    disk_gib: float = 5.0  # free, where runs and checkpoints lie
    shm_gib: float = 1.0  # size of /dev/shm; containers come with 0.06, too little for NCCL and for data loaders
    memlock_mib: float = 8.0  # the kernel's own default since 5.16
    nofile: int = 1024  # the kernel's own default


@dataclass(frozen=True)
class Code:
    """The code on the controller, which should be that of the nodes."""

    source: str = ""
    problem: str = ""  # why it could not be read
    requirements: str = ""  # its file that says what it requires
    required: str = ""  # the hash of that
    left: str = ""  # why it was not brought, as code_left of launch_plan

    @property
    def is_coming(self) -> bool:
        """Whether the launch itself is going to bring it."""
        return self.left in ("later", "refused")


@dataclass(frozen=True)
class Case:
    """One question to the checks. `facts` holds the nodes that answered only."""

    job: Job
    table: RankTable
    facts: Facts
    names_needed: bool = False  # nodes must know each other's names: launchers that go by them, or a person's wish
    replace: bool = False  # muster runs on the nodes are going to be stopped
    thresholds: Thresholds = field(default_factory=Thresholds)
    code: Code = field(default_factory=Code)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that answered, in the order of their ranks."""
        return [node for node in self.table.nodes if node.name in self.facts]

    @property
    def all_loopback(self) -> bool:
        """Whether all nodes are one machine, judging by their addresses: then there is no network between them."""
        addresses = [ip_literal(node.address) for node in self.table.nodes]
        return all(address is not None and address.is_loopback for address in addresses)

    @property
    def by_names(self) -> bool:
        """Whether names must be right: the launcher goes by them, or somebody wants them to be."""
        return self.names_needed or launcher_of(self.job).uses_names

    def part(self, name: str) -> list[tuple[Node, Any]]:
        """The nodes with this part of the facts, and the part."""
        return [(node, self.facts[node.name][name]) for node in self.nodes if self.facts[node.name].get(name)]


def odd_ones(values: Mapping[str, Hashable]) -> tuple[Hashable, dict[str, Hashable]]:
    """What most nodes have, and {node: value} of the others. With no majority the value of the first node counts."""
    counts = Counter(values.values())
    most = max(counts.values(), default=0)
    usual = next((value for value in values.values() if counts[value] == most), None)
    return usual, {name: value for name, value in values.items() if value != usual}


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names for a message, cut where they are many."""
    all_names = list(names)
    shown = ", ".join(all_names[:most])
    return shown if len(all_names) <= most else f"{shown} and {len(all_names) - most} more"


def gibibytes(number: float) -> str:
    """Bytes in GiB for a message."""
    return f"{number / 2**30:.1f} GiB" if number < 100 * 2**30 else f"{number / 2**30:.0f} GiB"
