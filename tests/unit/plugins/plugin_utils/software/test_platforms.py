"""The choice of torch builds for platforms other than x86_64 with NVIDIA GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.filter.software_choice import software_choice
from ansible_collections.muster.training.plugins.plugin_utils._software import choose, platforms
from ansible_collections.muster.training.plugins.plugin_utils._software.choose import (
    NodeSoftware,
    SoftwareChoiceError,
    SoftwareRequest,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.torch_pins import read_pins
from tests.unit.healthy import cluster
from tests.unit.plugins.plugin_utils.checks.test_gpu_vendors import with_amd

GH200, GB200, A100 = ("GH200 480GB", (9, 0)), ("GB200", (10, 0)), ("A100-SXM4-80GB", (8, 0))


def arm(gpu: Any = None, driver: str = "580.65.06", **more: Any) -> NodeSoftware:
    fields = {"gpus": 1, "driver": driver, "devices": (gpu,)} if gpu else {}
    return NodeSoftware("a", **{"python": "3.12.3", "glibc": "2.39", "architecture": "aarch64", **fields, **more})


def amd(target: str = "gfx942", name: str = "a", **more: Any) -> NodeSoftware:
    fields = {"gpus": 8, "driver": "6.10.5", "vendor": "amd", "targets": (("AMD Instinct", target),)}
    return NodeSoftware(name, **{"python": "3.12.3", "glibc": "2.39", "architecture": "x86_64", **fields, **more})


def chosen(*nodes: NodeSoftware, **settings: Any) -> tuple[str, str]:
    choice = choose.choose({node.name: node for node in nodes}, SoftwareRequest(**settings))
    return choice.torch, choice.build


def refused(*nodes: NodeSoftware, **settings: Any) -> str:
    with pytest.raises(SoftwareChoiceError) as refusal:
        choose.choose({node.name: node for node in nodes}, SoftwareRequest(**settings))
    return str(refusal.value)


@pytest.mark.parametrize(
    ("node", "settings", "expected"),
    [
        (arm(GH200), {}, ("2.13.0", "cu132")),
        (arm(GB200), {}, ("2.13.0", "cu132")),
        (arm(GH200, driver="550.54.15"), {}, ("2.10.0", "cu128")),
        (arm(GH200), {"torch": "2.6.0"}, ("2.6.0", "cu126")),
        (arm(GB200), {"torch": "2.7.1"}, ("2.7.1", "cu128")),
        (arm(A100, driver="550.54.15"), {}, ("2.10.0", "cu126")),  # Graviton with A100: cu128 has no kernels for it
        (arm(), {}, ("2.13.0", "cpu")),  # Graviton without GPUs
        (arm(), {"torch": "2.4.1"}, ("2.4.1", "cpu")),
        (amd(), {}, ("2.13.0", "rocm7.2")),
        (amd("gfx950"), {}, ("2.13.0", "rocm7.2")),
        (amd("gfx90a"), {"torch": "2.9.1"}, ("2.9.1", "rocm6.4")),
        (amd(), {"cuda": "rocm7.1"}, ("2.13.0", "rocm7.1")),
        (amd(), {"cuda": "cpu"}, ("2.13.0", "cpu")),
        (amd(driver=""), {"cuda": "rocm6.4"}, ("2.9.1", "rocm6.4")),
        (amd(), {"pins": tuple(read_pins({"requirements.txt": ["torch==2.10.0+rocm7.0"]}))}, ("2.10.0", "rocm7.0")),
    ],
)
def test_build_matches_the_platform(node: NodeSoftware, settings: dict[str, Any], expected: tuple[str, str]) -> None:
    assert chosen(node, **settings) == expected


@pytest.mark.parametrize(
    ("node", "settings", "texts"),
    [
        (arm(GH200), {"torch": "2.5.1"}, ["no builds of torch 2.5.1 are known", "torch 2.6: 12.6"]),
        (arm(GB200), {"torch": "2.6.0"}, ["no kernels for GB200", "sm_90"]),
        (arm(GH200), {"flash": "auto"}, ["no wheels for aarch64", "flash_attention_build to true"]),
        (amd(), {"flash": "auto"}, ["no wheels for x86_64 with AMD GPUs", "scaled_dot_product_attention"]),
        (amd(), {"cuda": "12.4"}, ["no torch is known for CUDA 12.4 on x86_64 with AMD GPUs", "rocm7.2"]),
        (amd(), {"torch": "2.9.1", "cuda": "rocm7.1"}, ["torch 2.9.1 does not exist for rocm7.1", "only for rocm6.4."]),
        (
            amd("gfx950"),
            {"torch": "2.9.1"},
            ["has no kernels for AMD Instinct (gfx950) on a", "Set pytorch_version to 2.13.0"],
        ),
        (
            amd(),
            {"torch": "2.5.1", "cuda": "12.4"},
            ["torch 2.5.1 does not exist for CUDA 12.4 on x86_64 with AMD GPUs"],
        ),
        (arm(GH200), {"cuda": "rocm6.4"}, ["no torch is known for rocm6.4 on aarch64"]),
        (amd(driver=""), {}, ["no amdgpu driver is loaded", "docs/arm_and_amd.md"]),
        (amd(architecture="aarch64"), {}, ["no builds of torch are known for aarch64 with AMD GPUs"]),
    ],
)
def test_missing_builds_are_refused(node: NodeSoftware, settings: dict[str, Any], texts: list[str]) -> None:
    message = refused(node, **settings)
    assert all(text in message for text in texts), message


def test_reasons_name_rocm_and_the_gpus() -> None:
    reasons = choose.choose({"a": amd()}, SoftwareRequest()).reasons
    assert reasons[2] == (
        "ROCm 7.2: the newest build that the drivers support (6.10.5 on a) and that has kernels for the GPUs "
        "(AMD Instinct (gfx942) on a)"
    )


def test_one_environment_is_not_chosen_for_different_nodes() -> None:
    nvidia = NodeSoftware("b", gpus=1, driver="580.65.06", python="3.12.3", architecture="x86_64")
    assert "GPUs of different vendors (amd on a, nvidia on b)" in refused(amd(), nvidia)
    assert "different processors (aarch64 on a, x86_64 on b)" in refused(arm(GH200), nvidia)
    assert "site_group=GROUP" in refused(arm(GH200), nvidia)


def test_filter_reads_vendor_and_processor_from_facts() -> None:
    facts = cluster(2, 8)
    with_amd()(facts)
    result = software_choice(facts, python="3.12")
    assert (result["refusal"], result["build"], result["cuda"]) == ("", "rocm7.2", "")
    facts = cluster(1, 1)
    facts["node1"]["architecture"] = "aarch64"
    facts["node1"]["gpus"]["devices"][0]["compute_capability"] = [9, 0]
    assert software_choice(facts, python="3.12")["build"] == "cu128"  # the node's driver is 570


def test_requirements_for_another_processor_do_not_count() -> None:
    facts = cluster(1, 0)
    facts["node1"]["architecture"] = "aarch64"
    project = {
        "requirements.txt": [
            "torch==2.9.1; platform_machine == 'aarch64'",
            "torch==2.6.0; platform_machine == 'x86_64'",
        ]
    }
    assert software_choice(facts, python="3.12", project=project)["version"] == "2.9.1"
    facts["node1"]["architecture"] = "x86_64"
    assert software_choice(facts, python="3.12", project=project)["version"] == "2.6.0"


def test_builds_are_named_as_in_their_indexes() -> None:
    builds = [0, 126, 132, 1064, 1071]
    assert list(map(platforms.build_name, builds)) == ["cpu", "cu126", "cu132", "rocm6.4", "rocm7.1"]
    assert list(map(platforms.describe_build, builds))[2:4] == ["CUDA 13.2", "ROCm 6.4"]


@pytest.mark.parametrize("builds", [platforms.ARM_BUILDS, platforms.ROCM_BUILDS])
def test_builds_are_of_known_releases(builds: Any) -> None:
    assert all(kernels for releases in builds.values() for kernels in releases.values())
    assert set(builds) <= set(platforms.DEFAULT.releases)


def test_the_page_has_the_builds_for_each_platform() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "arm_and_amd.md").read_text(encoding="utf-8")
    for (major, minor), builds in platforms.ARM_BUILDS.items():
        listed = [
            (build, [f"{arch[3:-1]}.{arch[-1]}" for arch in kernels.split()]) for build, kernels in builds.items()
        ]
        cells = "; ".join(f"{platforms.format_build(build)}: {' '.join(archs)}" for build, archs in listed)
        assert f"\n| {major}.{minor} | {cells} |\n" in page
    for (major, minor), builds in platforms.ROCM_BUILDS.items():
        cells = ", ".join(platforms.format_build(build).removeprefix("rocm") for build in builds)
        assert f"\n| {major}.{minor} | {cells} | " in page
    targets = platforms.WITH_MI350.split()
    assert all(target in page for target in targets)
