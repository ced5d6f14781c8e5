# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The input to the checks: a job, its rank table, and the nodes' facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable, ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import get_launcher
from ansible_collections.muster.training.plugins.plugin_utils._software.user_python import user_python

Facts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Thresholds:
    """Limits beyond which a value is reported as a finding."""

    clock_skew: float = 1.0  # seconds of difference between a node's clock and the others
    disk_gib: float = 5.0  # free space where runs and checkpoints are written
    # size of /dev/shm; the default in containers is 0.06, which is too little for NCCL and data loaders
    shm_gib: float = 1.0
    memlock_mib: float = 8.0  # the kernel's default since 5.16
    nofile: int = 1024  # the kernel's default


@dataclass(frozen=True)
class ControllerCode:
    """The code on the controller, which the nodes should also have."""

    source: str = ""
    problem: str = ""  # reason why the source could not be read
    requirements: str = ""  # path of the requirements file
    required: str = ""  # the hash of the requirements file
    skip_reason: str = ""  # reason why it was not copied to the nodes: launch_plan's code_skip_reason
    local_nodes: frozenset[str] = frozenset()  # nodes that are the controller itself, and need no copy
    files: tuple[str, ...] = ()  # paths of its files relative to the source; empty if there are too many

    @property
    def will_be_copied(self) -> bool:
        """Return whether the launch itself will copy the code to the nodes."""
        return self.skip_reason in ("later", "refused")


@dataclass(frozen=True)
class CheckContext:
    """The input to every check. `facts` contains only nodes that replied."""

    job: Job
    table: RankTable
    facts: Facts
    # nodes must be able to resolve each other's names even though the launcher does not use them
    names_needed: bool = False
    replace: bool = False  # the launch will stop muster runs on the nodes
    thresholds: Thresholds = field(default_factory=Thresholds)
    code: ControllerCode = field(default_factory=ControllerCode)
    environment: Mapping[str, str] = field(default_factory=dict)  # the job's variables that do not contain secrets
    bad_nodes: tuple[Any, ...] = ()  # machines that must not be used: see _record/bad_nodes.py

    @property
    def nodes(self) -> list[Node]:
        """Return the nodes that replied, in rank order."""
        return [node for node in self.table.nodes if node.name in self.facts]

    @property
    def user_python(self) -> str:
        """Return the interpreter that the user has set with launch_python, or "": see _software/user_python.py."""
        return user_python(self.job.interpreter, self.job.image)

    @property
    def all_loopback(self) -> bool:
        """Return whether all nodes have loopback addresses, meaning one machine with no network in between."""
        addresses = [ip_literal(node.address) for node in self.table.nodes]
        return all(address is not None and address.is_loopback for address in addresses)

    @property
    def requires_name_resolution(self) -> bool:
        """Return whether names must resolve correctly because the launcher uses them or the user requires it."""
        return self.names_needed or get_launcher(self.job).uses_names

    def interpreter_of(self, name: str) -> str:
        """Return the job's interpreter on a node: the first candidate that exists there."""
        return str(self.facts[name].get("interpreter") or self.job.interpreter)

    def nodes_with(self, part: str) -> list[tuple[Node, Any]]:
        """Return the nodes whose facts include this part, along with the part."""
        return [(node, self.facts[node.name][part]) for node in self.nodes if self.facts[node.name].get(part)]


def find_outliers(values: Mapping[str, Hashable]) -> tuple[Hashable, dict[str, Hashable]]:
    """Return the most common value (in a tie, the first node's), and {node: value} for the nodes that differ."""
    counts = Counter(values.values())
    highest = max(counts.values(), default=0)
    majority = next((value for value in values.values() if counts[value] == highest), None)
    return majority, {name: value for name, value in values.items() if value != majority}


def format_gib(size: float) -> str:
    """Format a number of bytes in units of GiB."""
    return f"{size / 2**30:.1f} GiB" if size < 100 * 2**30 else f"{size / 2**30:.0f} GiB"
