# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Slurm cluster as described by its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MEMORY_SHARE = 0.95
"""The share of a node's memory that Slurm may give to jobs, so that it is still available if a kernel update takes a
little.
"""


@dataclass(frozen=True)
class Gpus:
    """A node's GPUs as a Slurm generic resource."""

    files: Sequence[str] = ()
    type: str = ""


@dataclass(frozen=True)
class SlurmNode:
    """A node; `name` is its name in Slurm."""

    inventory_name: str
    name: str
    address: str
    hostname: str
    cpus: Mapping[str, int]
    memory: int  # MiB
    gpus: Gpus = Gpus()

    @property
    def usable_memory(self) -> int:
        """Memory for jobs, in MiB."""
        return int(self.memory * MEMORY_SHARE)


@dataclass(frozen=True)
class SlurmOptions:
    """Options of the role; see roles/slurm/defaults/main.yml."""

    cluster_name: str = "muster"
    partition: str = "training"
    max_time: str = "INFINITE"
    exclusive: bool = True
    node_timeout: int = 30
    accounting: bool = False
    database_memory: int = 256  # MiB
    health_interval: int = 0  # seconds; 0: no health check
    health_skip: Sequence[str] = ()
    program: Mapping[str, Any] = field(default_factory=dict)
    """Directories and files of the health check, from muster.training.program_files."""
    adopt_logins: bool = False
    adopt_admins: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    managed: str = "Ansible managed"


@dataclass(frozen=True)
class Cluster:
    """All nodes, in rank order. The first node is the controller."""

    nodes: Sequence[SlurmNode]
    version: str
    release: tuple[int, ...]
    options: SlurmOptions
    cgroups: bool

    @property
    def controller(self) -> SlurmNode:
        """The node that runs slurmctld."""
        return self.nodes[0]
