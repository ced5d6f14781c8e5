# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a node that joins a run equals the plan that the launch would have created for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import plan_of_attempt
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import (
    engine_options,
    replace_ids_of_node,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.launch_options import launch_options
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_c10d import joining_command
from ansible_collections.muster.training.plugins.plugin_utils._plan.new_node import apply_replacements, plan_of_new_node
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit.supervised import make_job

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
JOBS: dict[str, dict[str, Any]] = {
    "torchrun": {"launcher": "torchrun"},
    "c10d": {"launcher": "torchrun", "rdzv_backend": "c10d"},
    "env": {"launcher": "env"},
    "accelerate": {"launcher": "accelerate"},
    "deepspeed": {"launcher": "deepspeed"},
    "image": {"launcher": "torchrun", "image": "pytorch/pytorch"},
    "unbound": {"launcher": "torchrun", "numa_binding": "none"},
}


def facts_of(rank: int) -> dict[str, Any]:
    """Return the facts of a node; network cards, homes, mounts, users' numbers and NUMA nodes differ."""
    return {
        "interpreter": "/opt/env/bin/python",
        "interface": f"eth{rank}",
        "runs_directory": f"/home/user{rank}/.muster/runs",
        "home": "/home/user",
        "uid": 1000 + rank,
        "gid": 1000 + rank,
        "system": {"numa": {"gpus": [1, 0], "cpus": {"0": f"0-{rank}", "1": f"{rank + 1}-8"}}},
        "working_directory": {"path": "/data/project"},
        "storage": {"mounts": [{"point": f"/mnt/{rank}", "state": "ok"}]},
        "script": {"path": "/data/project/train.py"},
    }


def plans_of(**options: Any) -> list[Any]:
    """Return the plans of three nodes, as created by a launch."""
    job = make_job(**{"restarts": 3, "restart_when": ("node_lost",), "args": ("--epochs", "3"), **options})
    hosts = [HostSpec(f"gpu{rank}", address, 2) for rank, address in enumerate(ADDRESSES)]
    table = get_launcher(job).order(build_rank_table(hosts))
    plans: list[Any] = [build_node_plan(job, table, node, facts_of(node.node_rank)) for node in table.nodes]
    for plan in plans:
        plan["options"] = launch_options(job)
    return plans


def directory_of(plan: Any, rank: int) -> str:
    return f"{facts_of(rank)['runs_directory']}/{plan['run_id']}/node{rank}"


@pytest.mark.parametrize("hub", [0, 1])
@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("name", JOBS)
def test_plan_is_that_of_a_launch(name: str, number: int, hub: int) -> None:
    """This holds in the attempt after the new node has joined, whichever node leads the run."""
    native = plans_of(**JOBS[name])
    before: Any = {"number": number, "hub": hub, "members": [hub], "master_port": 29501, "checkpoint": ""}
    after: Any = {**before, "number": number + 1, "members": [hub, 2], "checkpoint": "/data/step-5"}
    joined = plan_of_new_node(json.loads(json.dumps(native[0])), before, 2, facts_of(2))
    assert joined["node"]["slots"] == 0 and joined["nodes"][2]["slots"] == 0, "it waits for the next attempt"
    directory = directory_of(joined, 2)
    expected = plan_of_attempt(plan_of_attempt(native[2], before, directory), after, directory)
    assert plan_of_attempt(joined, after, directory) == expected


def test_node_that_joins_an_elastic_run_takes_part_at_once() -> None:
    native = plans_of(launcher="torchrun", rdzv_backend="c10d", restarts=0, min_nnodes=2)
    joined = plan_of_new_node(json.loads(json.dumps(native[0])), {}, 2, facts_of(2))
    assert joined == native[2]


def test_only_names_and_addresses_of_nodes_are_taken_from_a_node() -> None:
    (launched, _second, _third) = plans_of(**JOBS["deepspeed"])
    nodes = [{"name": f"gpu{rank}", "address": address, "generation": 0} for rank, address in enumerate(ADDRESSES)]
    nodes[1] = {"name": "new", "address": "10.0.0.9", "generation": 2, "slots": 99}
    recorded: Any = apply_replacements(launched, nodes)
    assert [node["name"] for node in recorded["nodes"]] == ["gpu0", "new", "gpu2"]
    assert recorded["nodes"][1] == {**launched["nodes"][1], "name": "new", "address": "10.0.0.9", "generation": 2}
    assert launched["nodes"][1]["name"] == "gpu1"
    with pytest.raises(ValueError, match="2 nodes instead of 3"):
        apply_replacements(launched, nodes[:2])
    with pytest.raises(ValueError, match="invalid description of the attempt"):
        plan_of_new_node(recorded, {"number": 0, "hub": 7, "members": [0], "checkpoint": ""}, 1, facts_of(1))


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_container_gets_the_groups_of_the_gpus_on_the_new_node(engine: str) -> None:
    def options(render: int) -> list[str]:
        gpus = {"vendor": "amd", "groups": {"render": render, "video": 44}}
        facts = {"uid": 1000, "gid": 1000, "gpu_count": 8, "gpus": gpus}
        job = make_job(image="rocm/pytorch", container_engine=engine)
        return [*engine_options(job, facts), "--volume=/a:/a", "--group-add=7", "rocm/pytorch"]

    facts = {"gpus": {"groups": {"render": 110, "video": 44}}}
    assert replace_ids_of_node(options(109), facts) == options(110)


def test_arguments_of_the_job_are_unchanged() -> None:
    command = ["python", "--rdzv-conf=is_host=1,x=1", "--local-addr=10.0.0.1", "--", "train.py", "--local-addr=here"]
    expected = ["python", "--rdzv-conf=is_host=0,x=1", "--local-addr=10.0.0.9", "--", "train.py", "--local-addr=here"]
    assert joining_command(command, "10.0.0.9") == expected
