# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPUs of each rank, which are those of its GPU's NUMA node. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._facts.numa import CPU_LIST
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import RANK_CPUS
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import VISIBLE_DEVICES
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job

NUMA = {"gpus": [range(-1, 1024)], "cpus": dict}


class CpuBinding(NamedTuple):
    """The CPUs of each local rank, such as "0-31", or () and the reason why ranks are not bound."""

    cpus: tuple[str, ...]
    reason: str = ""


class PlannedJob(NamedTuple):
    """The job options that the binding depends on, from a plan."""

    numa_binding: str
    stacks: bool
    variables: tuple[str, ...]
    gpus: tuple[int, ...]


def empty_binding(reason: str) -> CpuBinding:
    """Return a binding to no CPUs."""
    return CpuBinding((), reason)


def bind_ranks(job: Job | PlannedJob, slots: int, starts_ranks: bool, facts: Mapping[str, Any]) -> CpuBinding:
    """Return the CPUs for the ranks of a node.

    "auto" binds only if no CPU of the node stays unused, since the job's data loaders may need all of them.

    Args:
        job: the job.
        slots: number of ranks on the node.
        starts_ranks: whether the launcher starts each rank, and not the job's script.
        facts: the node's facts.
    """
    numa = validate_numa((facts.get("system") or {}).get("numa"))
    if job.numa_binding == "none":
        return empty_binding("launch_numa_binding is none")
    if not job.stacks:
        return empty_binding("launch_stacks is false, so muster runs no code in the ranks")
    if not starts_ranks:
        return empty_binding("the job's script starts the ranks")
    if set(VISIBLE_DEVICES).intersection(job.variables):
        return empty_binding("the job's variables select the GPUs")
    selected = job.gpus or tuple(range(len(numa["gpus"])))
    if max(selected, default=0) >= len(numa["gpus"]):
        return empty_binding("the node does not expose which NUMA nodes its GPUs belong to")
    if len(selected) != slots:
        return empty_binding(f"the numbers of ranks ({slots}) and of GPUs ({len(selected)}) on the node differ")
    names = {device["name"] for device in (facts.get("gpus") or {}).get("devices") or ()}
    if len(names) > 1 and not job.gpus:
        return empty_binding("the node has different GPU models, which CUDA numbers by speed")
    return bind_to_nodes(job.numa_binding, [numa["gpus"][gpu] for gpu in selected], numa["cpus"])


def validate_numa(value: Any) -> dict[str, Any]:
    """Return the NUMA nodes that a node reports, without invalid parts, because they become part of the plan."""
    if not conforms(value, NUMA):
        return {"gpus": [], "cpus": {}}
    return {
        "gpus": value["gpus"],
        "cpus": {name: cpus for name, cpus in value["cpus"].items() if conforms(cpus, CPU_LIST)},
    }


def bind_to_nodes(binding: str, nodes: list[int], cpus: Mapping[str, str]) -> CpuBinding:
    """Return the CPUs for ranks whose GPUs are on these NUMA nodes. cpus: by NUMA node."""
    if any(str(node) not in cpus for node in nodes):
        return empty_binding("the node does not expose which CPUs its GPUs belong to")
    if len(cpus) < 2:
        return empty_binding("the node has a single NUMA node")
    if binding == "auto" and len(set(nodes)) < len(cpus):
        return empty_binding("the job's GPUs belong to only some of the NUMA nodes")
    return CpuBinding(tuple(cpus[str(node)] for node in nodes))


def binding_environment(binding: CpuBinding) -> dict[str, str]:
    """Return the environment variable that stack_hook.py uses to bind each rank."""
    return {RANK_CPUS: ";".join(binding.cpus)} if binding.cpus else {}


def render_binding(job: Job, binding: CpuBinding) -> list[str]:
    """Render the CPUs of a node's ranks for a terminal; if there are none, give the reason if binding was requested."""
    if not binding.cpus:
        return [f"  CPUs         ranks are not bound: {binding.reason}"] if job.numa_binding == "node" else []
    ranks: dict[str, list[int]] = {}
    for local_rank, cpus in enumerate(binding.cpus):
        ranks.setdefault(cpus, []).append(local_rank)
    parts = [f"{cpus} for local rank {', '.join(map(str, numbers))}" for cpus, numbers in ranks.items()]
    return [f"  CPUs         those of each GPU's NUMA node: {'; '.join(parts)}"]
