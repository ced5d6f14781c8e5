# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU binding: the CPUs of each rank, and the actual affinity of ranks with every launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor import stack_collector
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._plan.cpu_binding import (
    bind_ranks,
    binding_environment,
    render_binding,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan
from tests.unit.supervised import make_job

FIRST, SECOND = "0-47,96-143", "48-95,144-191"


def facts(*nodes: int, cpus: dict[str, str] | None = None, names: tuple[str, ...] = ("H100",)) -> dict[str, Any]:
    """Return the facts of a node whose GPUs are on these NUMA nodes."""
    devices = [{"name": names[index % len(names)]} for index in range(len(nodes))]
    numa = {"gpus": list(nodes), "cpus": {"0": FIRST, "1": SECOND} if cpus is None else cpus}
    return {"system": {"numa": numa}, "gpus": {"devices": devices}}


def test_each_rank_gets_the_cpus_of_its_gpu() -> None:
    binding = bind_ranks(make_job(), 4, True, facts(0, 0, 1, 1))
    assert binding.cpus == (FIRST, FIRST, SECOND, SECOND)
    assert binding_environment(binding) == {"MUSTER_RANK_CPUS": f"{FIRST};{FIRST};{SECOND};{SECOND}"}
    assert render_binding(make_job(), binding) == [
        f"  CPUs         those of each GPU's NUMA node: {FIRST} for local rank 0, 1; {SECOND} for local rank 2, 3"
    ]
    assert bind_ranks(make_job(gpus=(3, 0)), 2, True, facts(0, 0, 1, 1)).cpus == (SECOND, FIRST)


@pytest.mark.parametrize("cpus", ["\x1b]0;title\x07", "0-99999999999", 7, "0-3\n4", None])
def test_cpus_invented_by_a_node_are_not_used(cpus: Any) -> None:
    binding = bind_ranks(make_job(), 2, True, facts(0, 1, cpus={"0": cpus, "1": SECOND}))
    assert binding.cpus == () and binding.reason.startswith("the node does not expose")
    invalid: list[Any] = [[], {"gpus": 7, "cpus": {}}, {"gpus": ["0", "1"], "cpus": {}}]
    for numa in invalid:
        assert bind_ranks(make_job(), 2, True, {**facts(0, 1), "system": {"numa": numa}}).cpus == ()


@pytest.mark.parametrize(
    ("read", "job", "slots", "starts_ranks", "reason"),
    [
        (facts(0, 0, 1, 1), {"numa_binding": "none"}, 4, True, "launch_numa_binding is none"),
        (facts(0, 0, 1, 1), {"stacks": False}, 4, True, "launch_stacks is false"),
        (facts(0, 0, 1, 1), {}, 4, False, "the job's script starts the ranks"),
        (facts(0, 0, 1, 1), {}, 1, True, "the numbers of ranks (1) and of GPUs (4) on the node differ"),
        (facts(0, 0, 1, 1), {"gpus": (0, 9)}, 2, True, "does not expose which NUMA nodes"),
        (facts(0, 0, 1, 1), {"gpus": (0, 1)}, 2, True, "only some of the NUMA nodes"),
        (facts(0, 0, 1, 1), {"variables": ("CUDA_VISIBLE_DEVICES",)}, 4, True, "variables select the GPUs"),
        (facts(0, 1, names=("A100", "T4")), {}, 2, True, "different GPU models"),
        (facts(0, -1), {}, 2, True, "does not expose which CPUs"),
        (facts(0, 0, cpus={"0": "0-7"}), {}, 2, True, "a single NUMA node"),
        (facts(0, 1, cpus={}), {}, 2, True, "does not expose which CPUs"),
        ({}, {}, 2, True, "does not expose which NUMA nodes"),
    ],
)
def test_ranks_are_not_bound_if_the_topology_is_uncertain(
    read: dict[str, Any], job: dict[str, Any], slots: int, starts_ranks: bool, reason: str
) -> None:
    binding = bind_ranks(make_job(**job), slots, starts_ranks, read)
    assert binding.cpus == () and reason in binding.reason
    assert binding_environment(binding) == {} and render_binding(make_job(**job), binding) == []


def test_requested_binding_uses_some_cpus_or_reports_the_reason() -> None:
    job = make_job(numa_binding="node", gpus=(0, 1))
    assert bind_ranks(job, 2, True, facts(0, 0, 1, 1)).cpus == (FIRST, FIRST)
    (line,) = render_binding(job, bind_ranks(job, 2, True, facts(0, -1)))
    assert line == "  CPUs         ranks are not bound: the node does not expose which CPUs its GPUs belong to"


@pytest.mark.parametrize(("launcher", "bound"), [("torchrun", True), ("mpirun", True), ("env", False)])
def test_plan_includes_the_cpus_for_launchers_that_start_the_ranks(tmp_path: Path, launcher: str, bound: bool) -> None:
    table = build_rank_table([HostSpec("a", "10.0.0.1", 2), HostSpec("b", "10.0.0.2", 2)])
    node = {
        "interpreter": sys.executable,
        "interface": "eth0",
        "runs_directory": str(tmp_path),
        "working_directory": {"path": str(tmp_path)},
        "system": facts(0, 1)["system"],
    }
    plan = build_node_plan(make_job(launcher=launcher), table, table.nodes[1], node)
    assert plan["environment"].get("MUSTER_RANK_CPUS") == (f"{FIRST};{SECOND}" if bound else None)


# the hook that binds ranks

PRINT = """
import json, os, subprocess, sys
child = [sys.executable, "-c", "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))))"]
print(json.dumps([sorted(os.sched_getaffinity(0)), json.loads(subprocess.check_output(child))]))
"""
CPUS = sorted(os.sched_getaffinity(0))
needs_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="a single CPU")


def affinity(directory: Path, *prefix: str, **variables: str) -> list[list[int]]:
    """Return the CPUs of a job's Python process, and those of a child process."""
    stack_collector.write_hook(str(directory))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(directory / "hooks"), **variables}
    command = [*prefix, sys.executable, "-c", PRINT]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    result: list[list[int]] = json.loads(output)
    return result


@needs_cpus
def test_rank_and_its_children_run_on_its_cpus(tmp_path: Path) -> None:
    first, second = CPUS[0], CPUS[1]
    lists = f"{first};{second}-{second}"
    assert affinity(tmp_path, MUSTER_RANK_CPUS=lists, LOCAL_RANK="1") == [[second], [second]]
    assert affinity(tmp_path, MUSTER_RANK_CPUS=lists, MUSTER_LOCAL_RANK="0") == [[first], [first]]


@needs_cpus
def test_bound_processes_and_other_processes_stay_unchanged(tmp_path: Path) -> None:
    first, second = CPUS[0], CPUS[1]
    lists = f"{first};{second}"
    bound = affinity(tmp_path, "taskset", "--cpu-list", str(first), MUSTER_RANK_CPUS=lists, LOCAL_RANK="1")
    assert bound == [[first], [first]]
    assert affinity(tmp_path, MUSTER_RANK_CPUS=lists) == [CPUS, CPUS], "a launcher"
    for wrong in ("", "nonsense;1", f"{first};99999", str(first)):
        assert affinity(tmp_path, MUSTER_RANK_CPUS=wrong, LOCAL_RANK="1") == [CPUS, CPUS], wrong
