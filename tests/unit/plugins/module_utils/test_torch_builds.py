"""Builds of torch: what is chosen, what is refused, and that a refusal names what would do."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils import _torch_builds as torch_builds

NONE: dict[str, Any] = {"gpus": 0, "driver": None}


def with_driver(driver: str | None) -> dict[str, Any]:
    return {"gpus": 2, "driver": driver}


@pytest.mark.parametrize(
    "version, cuda, nodes, build",
    [
        ("2.5.1", "12.4", {"a": with_driver("550.54.15")}, "cu124"),
        ("2.5.1", "12.4", {"a": NONE}, "cu124"),
        ("2.5.1", "cpu", {"a": with_driver("550.54.15")}, "cpu"),
        ("2.5.1", "auto", {"a": NONE, "b": NONE}, "cpu"),
        ("2.5.1", "auto", {"a": NONE, "b": with_driver("535.183.01")}, "cu124"),
        ("2.5.1", "auto", {"a": with_driver("470.57.02")}, "cu118"),
        ("2.13.0", "auto", {"a": with_driver("580.65.06")}, "cu132"),
        ("2.13.0", "auto", {"a": with_driver("580.65.06"), "b": with_driver("570.26")}, "cu126"),
        # 525.60.13 itself, and what is less only as text: 525.105.17
        ("2.13.0", "auto", {"a": with_driver("525.60.13")}, "cu126"),
        ("2.13.0", "12.6", {"a": with_driver("525.105.17")}, "cu126"),
        # a node without a driver yet, where the build is said
        ("2.5.1", "12.4", {"a": with_driver(None)}, "cu124"),
    ],
)
def test_the_build_for_these_nodes(version: str, cuda: str, nodes: dict[str, Any], build: str) -> None:
    assert torch_builds.choose_build(version, cuda, nodes) == build


@pytest.mark.parametrize(
    "version, cuda, nodes, said",
    [
        (
            "2.8.0",
            "12.4",
            {},
            [
                "there is no torch 2.8.0 for CUDA 12.4",
                "torch 2.8.0 is there for CUDA 12.6, 12.8, 12.9",
                "CUDA 12.4 is there for torch 2.4, 2.5, 2.6",
                "  torch 2.13: 12.6, 13.0, 13.2",
            ],
        ),
        ("2.5.1", "12", {}, ["there is no torch 2.5.1 for CUDA 12.", "12.1, 12.4"]),
        ("2.5", "12.4", {}, ["pytorch_version is '2.5'", "such as 2.5.1"]),
        ("1.13.1", "11.7", {}, ["no builds of torch 1.13.1 are known", "torch 2.3"]),
        (
            "2.13.0",
            "13.0",
            {"a": with_driver("550.54.15"), "b": with_driver("580.65.06")},
            ["a has 550.54.15.", "Needed: 580 or newer", "role nvidia_driver", "or set pytorch_cuda to 12.6"],
        ),
        (
            "2.13.0",
            "auto",
            {"a": with_driver("470.57.02")},
            ["torch 2.13.0 with CUDA 12.6", "a has 470.57.02", "Needed: 525.60.13 or newer"],
        ),
        ("2.5.1", "auto", {"b": with_driver(None)}, ["b: there are GPUs, but no NVIDIA driver is loaded"]),
    ],
)
def test_a_refusal_names_what_would_do(version: str, cuda: str, nodes: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(torch_builds.NoSuchBuild) as problem:
        torch_builds.choose_build(version, cuda, nodes)
    for words in said:
        assert words in str(problem.value)


def test_no_way_out_is_named_where_there_is_none() -> None:
    with pytest.raises(torch_builds.NoSuchBuild) as problem:
        torch_builds.choose_build("2.13.0", "12.6", {"a": with_driver("470.57.02")})
    assert "or set pytorch_cuda" not in str(problem.value)


def test_every_build_has_a_least_driver() -> None:
    for builds in torch_builds.BUILDS.values():
        assert list(builds) == sorted(builds)
        for build in builds:
            assert torch_builds.runs(torch_builds.least_driver(build), build)


def test_companions_are_of_the_release_that_was_made_for_this_torch() -> None:
    assert torch_builds.requirements("2.5.1", ["torchvision", "torchaudio", "numpy<2"]) == [
        "torch==2.5.1",
        "torchvision==0.20.*",
        "torchaudio==2.5.*",
        "numpy<2",
    ]
