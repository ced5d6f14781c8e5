"""A job on some GPUs of each node: slots, ports, environment, container, samples and checks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.muster.training.plugins.action.compare_code import find_skip_reason
from ansible_collections.muster.training.plugins.action.launch_plan import make_plan, render_plan
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import gpu_options
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_sampler import sample_command
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import limit_facts, parse_gpus
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan
from tests.unit.healthy import Facts, arguments, cluster, findings

ROLES = Path(__file__).parents[5] / "roles"


@pytest.mark.parametrize(
    ("value", "gpus"),
    [
        (None, ()),
        ("", ()),
        ([], ()),
        (0, (0,)),
        ("2", (2,)),
        ("0,1", (0, 1)),
        ("[2, 3]", (2, 3)),
        ([2, "3"], (2, 3)),
    ],
)
def test_gpus_may_be_a_list_or_a_string(value: object, gpus: tuple[int, ...]) -> None:
    assert parse_gpus(value) == gpus


@pytest.mark.parametrize("value", ["all", "0-3", "-1", "0,,1", "256", [True], [[0]], {"a": 1}, "0,0"])
def test_invalid_gpus_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="^launch_gpus is "):
        parse_gpus(value)


@pytest.mark.parametrize("role", ["launch", "preflight"])
@pytest.mark.parametrize(
    ("gpus", "master", "lifeline"),
    [([], 29500, 29499), ("", 29500, 29499), ("0,1", 29500, 29499), ([2, 3], 29520, 29519), ("7", 29570, 29569)],
)
def test_default_ports_depend_on_the_first_gpu(role: str, gpus: object, master: int, lifeline: int) -> None:
    defaults = yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())
    environment = jinja2.Environment(autoescape=False)
    environment.filters["regex_search"] = lambda text, pattern: (re.search(pattern, text) or [None])[0]
    ports = [
        int(environment.from_string(defaults[f"{role}_{name}_port"]).render({f"{role}_gpus": gpus}))
        for name in ("master", "lifeline")
    ]
    assert ports == [master, lifeline]


def planned(facts: dict[str, Facts], **options: Any) -> tuple[Any, Any, list[Any], list[Any]]:
    """Return the job, its rank table, the findings, and the nodes' plans."""
    args = arguments(facts, **options)
    for node in args["nodes"]:
        node["slots"] = 8  # set in the inventory
    job, table, problems = make_plan(args)
    return job, table, problems, [build_node_plan(job, table, node, facts[node.name]) for node in table.nodes]


def with_smi(count: int = 2, gpu_count: int = 8) -> dict[str, Facts]:
    facts = cluster(count, gpu_count)
    for node in facts.values():
        node["gpus"]["smi"]["path"] = "/usr/bin/nvidia-smi"
    return facts


def test_job_has_one_process_per_selected_gpu_and_sees_only_those() -> None:
    job, table, problems, plans = planned(with_smi(), gpus="2,3")
    assert problems == []
    assert (table.world_size, [node.slots for node in table.nodes]) == (4, [2, 2])
    assert plans[0]["gpus"] == [2, 3]
    environment = plans[1]["environment"]
    assert (environment["CUDA_DEVICE_ORDER"], environment["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "2,3")
    assert plans[0]["gpu_samples"][-1] == "--id=2,3"
    assert "  GPUs         2, 3 on each node" in render_plan(job, table, {}).splitlines()


def test_job_without_a_selection_has_all_gpus() -> None:
    _job, _table, problems, plans = planned(with_smi())
    assert problems == []
    assert plans[0]["gpus"] == []
    assert "CUDA_VISIBLE_DEVICES" not in plans[0]["environment"]
    assert not any(argument.startswith("--id") for argument in plans[0]["gpu_samples"])


def test_nproc_per_node_takes_precedence_over_the_number_of_gpus() -> None:
    _job, table, problems, _plans = planned(with_smi(), gpus="2,3", nproc_per_node=1)
    assert table.world_size == 2
    assert {finding.id for finding in problems} == {"gpu-idle"}


def test_container_gets_only_the_selected_gpus() -> None:
    _job, _table, _problems, plans = planned(with_smi(), gpus="2,3", image="pytorch")
    assert '--gpus="device=2,3"' in plans[0]["wrap"]
    assert "CUDA_VISIBLE_DEVICES" not in plans[0]["environment"], "the container numbers its GPUs from 0"
    podman = gpu_options("podman", (2, 3))
    assert podman[:2] == ["--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=3"]
    assert gpu_options("docker", ()) == ["--gpus=all"]


def test_visible_devices_set_by_the_user_are_refused() -> None:
    args = arguments(with_smi(), gpus="0", environment={"CUDA_VISIBLE_DEVICES": "1"})
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES is set by launch_gpus: remove it from"):
        make_plan(args)


@pytest.mark.parametrize("gpu_count", [0, 2])
def test_gpu_that_the_node_does_not_have_is_an_error(gpu_count: int) -> None:
    (finding,) = findings(cluster(1, gpu_count), gpus="1,2" if gpu_count else "2")
    assert (finding.severity, finding.id) == ("error", "gpu-count")
    assert finding.problem == f"the node has no GPU 2: it has {gpu_count or 'no'} GPUs"


def holder(*devices: str, run: str = "") -> dict[str, Any]:
    process = {"pid": 4711, "command": "python other.py", "user": "ada", "orphan": False, "memory_mib": None}
    return {**process, "devices": list(devices), "run": run}


@pytest.mark.parametrize(
    ("device", "gpus", "ids"),
    [
        ("/dev/nvidia0", "0,1", ["gpu-busy"]),
        ("/dev/nvidia0", "2,3", []),
        ("first", "2,3", []),
        ("first", "0", ["gpu-busy"]),
        ("MIG-1", "2,3", ["gpu-busy"]),
    ],
)
def test_only_processes_on_the_selected_gpus_count(device: str, gpus: str, ids: list[str]) -> None:
    facts = cluster(1, 4)
    uuid = facts["node1"]["gpus"]["devices"][0]["uuid"]
    facts["node1"]["gpus"]["processes"].append(holder(uuid if device == "first" else device))
    assert [finding.id for finding in findings(facts, gpus=gpus)] == ids


def other_run(facts: dict[str, Facts], *gpus: int, directory: str = "/home/ada/other") -> None:
    run = {"run_id": "other", "address": "10.0.0.11", "directory": "/runs/other/node0", "pid": 1}
    facts["node1"]["runs"] = [{**run, "gpus": list(gpus), "working_directory": directory}]


def test_run_on_other_gpus_does_not_make_a_node_busy() -> None:
    facts = cluster(1, 4)
    other_run(facts, 0, 1)
    facts["node1"]["gpus"]["processes"].append(holder("/dev/nvidia0", run="other"))
    assert findings(facts, gpus="2,3") == []


def test_run_that_uses_an_unassigned_gpu_is_reported() -> None:
    facts = cluster(1, 4)
    other_run(facts, 0, 1)
    facts["node1"]["gpus"]["processes"].append(holder("/dev/nvidia2", run="other"))
    (finding,) = findings(facts, gpus="2,3")
    assert finding.id == "gpu-busy" and "run other" in finding.problem


@pytest.mark.parametrize(
    ("gpus", "requirement"), [("1,2", "no other run on GPUs 1, 2 of the node"), ("", "no other run")]
)
def test_busy_gpus_are_named_with_those_that_are_free(gpus: str, requirement: str) -> None:
    facts = cluster(1, 4)
    other_run(facts, 0, 1)
    (finding,) = findings(facts, gpus=gpus)
    assert (finding.id, finding.problem) == ("busy", "run other is running on the node on GPUs 0, 1")
    assert finding.requirement.startswith(requirement)
    assert "-e gpus=2,3" in finding.remedy


def test_no_gpus_are_suggested_if_a_run_uses_all_of_them() -> None:
    facts = cluster(1, 4)
    other_run(facts)
    (finding,) = findings(facts, gpus="2,3")
    assert finding.id == "busy" and "-e gpus" not in finding.remedy


def test_facts_are_limited_once() -> None:
    facts = with_smi()["node1"]
    limited = limit_facts(facts, (2, 9))
    assert limited["gpu_count"] == 1 and limited["gpus"]["total"] == 8
    assert limit_facts(limited, (2, 9)) is limited
    assert sample_command(limited)[-1] == "--id=2"


@pytest.mark.parametrize(
    ("directory", "gpus", "reason"),
    [
        ("/home/ada/project", (2,), "in_use"),
        ("/home/ada/project/scripts", (2,), "in_use"),
        ("/home/ada/project2", (2,), ""),
        ("/home/ada/project", (1,), "refused"),
        ("/home/ada/project", (), "refused"),
    ],
)
def test_code_of_a_run_on_other_gpus_is_not_overwritten(directory: str, gpus: tuple[int, ...], reason: str) -> None:
    facts = cluster(1, 4)
    other_run(facts, 0, 1, directory=directory)
    facts["node1"]["code"] = {"path": "/home/ada/project"}
    nodes = [{"name": "node1", "address": "10.0.0.11"}]
    assert find_skip_reason(nodes, facts, "synced", False, gpus) == reason


def test_code_in_use_prevents_the_start() -> None:
    facts = cluster(1, 4)
    counts = {"counts": {"older": 1}, "names": {"older": ["train.py"]}}
    facts["node1"]["code"] = {"path": "/home/ada/project", "same": False, "required": None, **counts}
    code = {"source": "/home/me/project"}
    (finding,) = findings(facts, gpus="2,3", code=code, code_skip_reason="in_use")
    assert (finding.severity, finding.id) == ("error", "code-older")
    assert "a run on other GPUs of the node is using it" in finding.problem and "code=as_is" in finding.remedy
