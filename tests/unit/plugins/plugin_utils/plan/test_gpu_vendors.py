"""Plans for nodes with AMD GPUs."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.action.launch_plan import make_plan
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan
from tests.unit.healthy import arguments, cluster
from tests.unit.plugins.plugin_utils.checks.test_gpu_vendors import with_amd


def plan_of(**settings: Any) -> Any:
    facts = cluster(2, 8)
    with_amd()(facts)
    for node in facts.values():
        node["image"] = {"engine": "/usr/bin/docker", "toolkit": False, "id": "sha256:1", "error": ""}
    job, table, _problems = make_plan(arguments(facts, **settings))
    return build_node_plan(job, table, table.nodes[0], facts["node1"])


def test_samples_are_taken_with_amd_smi() -> None:
    plan = plan_of()
    assert plan["gpu_vendor"] == "amd"
    assert plan["gpu_samples"][-2:] == ["--sample-amd-gpus", "/opt/rocm/bin/amd-smi"]
    assert plan["gpu_samples"][3] == "/home/ubuntu/.muster/runs/run/node0/supervisor.py"


def test_the_selection_is_passed_to_hip() -> None:
    plan = plan_of(gpus="2,3")
    assert plan["environment"]["HIP_VISIBLE_DEVICES"] == "2,3"
    assert not {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} & set(plan["environment"])
    assert plan["gpu_samples"][-2:] == ["2", "3"]
    assert "HIP_VISIBLE_DEVICES" not in plan_of()["environment"]


def test_containers_get_the_device_files_and_their_groups() -> None:
    plan = plan_of(image="rocm/pytorch", gpus="1")
    options = plan["wrap"]
    assert {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=993", "--group-add=44"} <= set(options)
    assert not any(option.startswith("--gpus") for option in options)
    assert plan["environment"]["HIP_VISIBLE_DEVICES"] == "1"
    assert "--env=HIP_VISIBLE_DEVICES" in options
    assert "--group-add=keep-groups" in plan_of(image="rocm/pytorch", container_engine="podman")["wrap"]


def test_plan_for_nvidia_gpus_names_no_vendor() -> None:
    facts = cluster(2, 8)
    job, table, _problems = make_plan(arguments(facts))
    assert "gpu_vendor" not in build_node_plan(job, table, table.nodes[0], facts["node1"])
