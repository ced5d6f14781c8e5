"""Versions that differ, and drivers that are too old."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.software import has_kernels
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import version_tuple
from tests.unit.healthy import Facts, cluster, findings, nothing, spoilt, together

EVERYONE = ("node1", "node2", "node3", "node4")


def package(facts: dict[str, Facts], name: str, version: str | None, *nodes: str) -> None:
    for node in nodes:
        if version is None:
            facts[node]["software"]["packages"].pop(name, None)
        else:
            facts[node]["software"]["packages"][name] = version


def everywhere(facts: dict[str, Facts], name: str, version: str) -> None:
    package(facts, name, version, *facts)


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        (lambda f: f["node2"]["software"].update(python="3.11.2"), [("error", "skew-python", ("node2",))]),
        (lambda f: package(f, "torch", "2.6.0", "node3"), [("error", "skew-torch", ("node3",))]),
        (lambda f: package(f, "torch", None, "node3"), [("error", "skew-torch", ("node3",))]),
        (lambda f: f["node2"]["software"].update(cuda="12.4"), [("error", "skew-cuda", ("node2",))]),
        (lambda f: package(f, "nccl", "2.21.5", "node4"), [("error", "skew-nccl", ("node4",))]),
        (lambda f: package(f, "flash_attn", "2.8.3", "node1"), [("error", "skew-flash-attn", ("node1",))]),
        (
            together(
                lambda f: everywhere(f, "transformers", "4.51.0"),
                lambda f: package(f, "transformers", "4.50.3", "node2"),
            ),
            [("error", "skew-transformers", ("node2",))],
        ),
        (lambda f: package(f, "numpy", "1.26.4", "node2", "node3"), [("warning", "skew-numpy", ("node2", "node3"))]),
        (lambda f: f["node4"].update(kernel="6.8.0-51-generic"), [("warning", "skew-kernel", ("node4",))]),
        (lambda f: f["node2"]["script"].update(sha256="bb" * 32), [("error", "skew-script", ("node2",))]),
        (
            lambda f: f["node2"]["software"].update(error="No module named 'encodings'", python=None, packages={}),
            [("error", "interpreter-broken", ("node2",))],
        ),
        (lambda f: package(f, "torch", None, *f), [("error", "torch-missing", EVERYONE)]),
    ],
)
def test_software_problem_is_reported_for_its_node(spoil: Any, result: Any) -> None:
    assert spoilt(spoil) == result


def imports_of(facts: dict[str, Facts], **values: Any) -> None:
    for node in facts.values():
        node["imports"] |= values


@pytest.mark.parametrize(
    ("imports", "options", "severity"),
    [
        ({}, {}, "warning"),
        ({"libraries": ["deepspeed", "torch"]}, {}, "error"),
        ({"features": ["deepspeed-ops"]}, {}, "error"),
        ({"files": 0, "libraries": [], "ended": "time"}, {}, "error"),
        ({}, {"args": ["--deepspeed", "ds.json"]}, "error"),
        ({}, {"launcher": "accelerate", "accelerate_config": {"distributed_type": "DEEPSPEED"}}, "error"),
    ],
)
def test_differing_deepspeed_version_is_an_error_only_if_the_job_may_use_it(
    imports: dict[str, Any], options: dict[str, Any], severity: str
) -> None:
    facts = cluster(3)
    everywhere(facts, "accelerate", "1.6.0")
    package(facts, "deepspeed", "0.19.8", "node1", "node3")
    imports_of(facts, **imports)
    finding = next(item for item in findings(facts, **options) if item.id == "skew-deepspeed")
    assert (finding.severity, finding.nodes) == (severity, ("node2",))
    assert "node2 has none; the others have 0.19.8" in finding.problem
    assert ("the job does not import it" in finding.problem) == (severity == "warning")
    assert "ansible-playbook site.yml --tags deepspeed -e deepspeed_enabled=true" in finding.remedy


def test_first_node_is_the_reference_without_a_majority() -> None:
    assert spoilt(lambda f: package(f, "torch", "2.6.0", "node2"), count=2) == [("error", "skew-torch", ("node2",))]
    facts = cluster(2)
    package(facts, "torch", "2.6.0", "node2")
    [finding] = findings(facts)
    assert finding.problem == "torch: node2 has 2.6.0; the others have 2.7.1"


IMAGE = {"interpreter": "/opt/pytorch/bin/python", "torch": "2.7.0", "cuda": "12.8"}


@pytest.mark.parametrize(
    ("projects", "remedy"),
    [
        ([["toy"]], "use the environment of a project: -e python_env_name=toy; install torch"),
        ([["toy", "nano"]], "use the environment of a project: -e python_env_name=nano (or toy); install torch"),
        ([["toy"], []], "install torch"),
    ],
)
def test_project_environment_is_offered_if_the_job_has_no_torch(projects: list[list[str]], remedy: str) -> None:
    facts = cluster(len(projects))
    package(facts, "torch", None, *facts)
    for node, names in zip(facts.values(), projects, strict=True):
        node["environments"] = [{**IMAGE, "interpreter": f"/opt/muster/envs/{name}", "project": name} for name in names]
    (finding,) = findings(facts)
    assert finding.id == "torch-missing" and finding.remedy.startswith(remedy)


def test_torch_in_the_machine_image_is_offered_if_the_job_has_no_torch() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        package(facts, "torch", None, *facts)
        for node in ("node2", "node3"):
            facts[node]["environments"] = [IMAGE]

    expected = [("error", "torch-missing", EVERYONE), ("warning", "image-environment", ("node2", "node3"))]
    assert spoilt(spoil) == expected
    facts = cluster(4)
    spoil(facts)
    offered = next(finding for finding in findings(facts) if finding.id == "image-environment")
    assert "torch 2.7.0 (CUDA 12.8) in /opt/pytorch/bin/python" in offered.problem
    assert "launch_python: /opt/pytorch/bin/python" in offered.remedy


def test_torch_in_the_machine_image_is_not_reported_if_the_job_has_torch() -> None:
    def add_environment(facts: Facts) -> None:
        for node in facts.values():
            node.update(environments=[IMAGE])

    assert spoilt(add_environment) == []


def test_only_torchrun_needs_torch() -> None:
    assert spoilt(lambda f: package(f, "torch", None, *f), launcher="env") == []


def driver(facts: dict[str, Facts], version: str, *nodes: str) -> None:
    for node in nodes:
        facts[node]["gpus"]["driver"] = dict.fromkeys(("loaded", "library", "on_disk"), version)
        for device in facts[node]["gpus"]["devices"]:
            device["driver"] = version


def cuda(facts: dict[str, Facts], version: str | None) -> None:
    for item in facts.values():
        item["software"]["cuda"] = version


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        (lambda f: driver(f, "575.57.08", "node2"), [("warning", "skew-driver", ("node2",))]),
        (
            lambda f: f["node3"]["gpus"]["devices"][0].update(name="A100-SXM4-80GB"),
            [("warning", "skew-gpu", ("node3",))],
        ),
        # 535.54.03 is older than 535.183.01, and both support CUDA 12
        (lambda f: driver(f, "525.60.12", *f), [("error", "driver-too-old", EVERYONE)]),
        (lambda f: driver(f, "525.60.13", *f), []),
        (lambda f: driver(f, "535.54.03", *f), []),
        (
            together(lambda f: cuda(f, "13.0"), lambda f: driver(f, "575.57.08", *f)),
            [("error", "driver-too-old", EVERYONE)],
        ),
        (together(lambda f: cuda(f, "13.0"), lambda f: driver(f, "580.65.06", *f)), []),
        (
            together(lambda f: cuda(f, "11.8"), lambda f: driver(f, "450.80.01", *f)),
            [("error", "driver-too-old", EVERYONE)],
        ),
        (lambda f: cuda(f, None), [("warning", "torch-without-cuda", EVERYONE)]),
    ],
)
def test_drivers_must_match_and_be_new_enough_for_torch(spoil: Any, result: Any) -> None:
    assert spoilt(spoil, gpu_count=2) == result


@pytest.mark.parametrize(
    ("archs", "runs", "not_runs"),
    [
        # machine code runs on the GPU it was compiled for, and on newer ones of the same generation
        (["sm_86"], [(8, 6), (8, 9)], [(8, 0), (9, 0), (7, 5)]),
        (["sm_60"], [(6, 0), (6, 1)], [(5, 2), (7, 0)]),
        (["sm_100", "sm_120"], [(10, 0), (10, 3), (12, 0), (12, 1)], [(9, 0), (11, 0)]),
        # PTX runs on all newer GPUs
        (["sm_37", "compute_37"], [(3, 7), (6, 1), (12, 0)], [(3, 5)]),
        # code for a specific GPU or generation runs only on that
        (["sm_90a"], [(9, 0)], [(9, 1), (10, 0)]),
        (["sm_100f"], [(10, 0), (10, 3)], [(12, 0)]),
        (["gfx90a"], [], [(9, 0)]),
        ([], [], [(8, 0)]),
    ],
)
def test_has_kernels_matches_gpu_architectures(
    archs: list[str], runs: list[tuple[int, int]], not_runs: list[tuple[int, int]]
) -> None:
    assert [item for item in [*runs, *not_runs] if has_kernels(archs, item)] == runs


def built_for(facts: dict[str, Facts], archs: str) -> None:
    for item in facts.values():
        item["software"]["archs"] = archs.split()


def gpu(facts: dict[str, Facts], model: str, capability: list[int], *nodes: str) -> None:
    for name in nodes or facts:
        for device in facts[name]["gpus"]["devices"]:
            device.update(name=model, compute_capability=capability)


TURING_ON = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        # the machines used in the guides: P4000, T4 and RTX 3070
        (
            together(lambda f: built_for(f, TURING_ON), lambda f: gpu(f, "Quadro P4000", [6, 1])),
            [("error", "torch-no-kernels", EVERYONE)],
        ),
        (together(lambda f: built_for(f, "sm_50 sm_60 sm_70 sm_75"), lambda f: gpu(f, "Quadro P4000", [6, 1])), []),
        (together(lambda f: built_for(f, TURING_ON), lambda f: gpu(f, "Tesla T4", [7, 5])), []),
        (together(lambda f: built_for(f, TURING_ON), lambda f: gpu(f, "GeForce RTX 3070", [8, 6])), []),
        (
            together(lambda f: built_for(f, TURING_ON), lambda f: gpu(f, "Tesla V100", [7, 0], "node2")),
            [("error", "torch-no-kernels", ("node2",)), ("warning", "skew-gpu", ("node2",))],
        ),
        # neither an old driver nor a torch build that does not report the capability is an error
        (lambda f: built_for(f, TURING_ON), []),
        (lambda f: gpu(f, "Quadro P4000", [6, 1]), []),
    ],
)
def test_torch_must_be_built_for_the_gpus(spoil: Any, result: Any) -> None:
    assert sorted(spoilt(spoil, gpu_count=2)) == result


def test_missing_kernels_are_reported_with_gpu_and_architectures() -> None:
    facts = cluster(2, gpu_count=1)
    built_for(facts, "sm_75 sm_80")
    gpu(facts, "Quadro P4000", [6, 1], "node1")
    result = next(item for item in findings(facts) if item.id == "torch-no-kernels")
    assert result.nodes == ("node1",)
    assert result.problem == (
        "torch 2.7.1 for CUDA 12.8 has no kernels for Quadro P4000 (compute capability 6.1): "
        "it is built for sm_75, sm_80"
    )
    assert result.remedy == (
        "install one: ansible-playbook site.yml --tags pytorch -e pytorch_version=auto -e pytorch_cuda=auto"
    )
    result = next(item for item in findings(facts, interpreter="/opt/python") if item.id == "torch-no-kernels")
    assert result.remedy == (
        "install one: `/opt/python -m pip install --force-reinstall torch --index-url "
        "https://download.pytorch.org/whl/cuVERSION` on each node"
    )


def test_versions_are_compared_as_numbers() -> None:
    assert version_tuple("535.183.01") > version_tuple("535.54.03")
