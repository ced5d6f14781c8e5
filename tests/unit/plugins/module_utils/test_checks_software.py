"""Versions that differ, and drivers that are too old."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._checks.software import version_tuple
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
    ("spoil", "found"),
    [
        (nothing, []),
        (lambda f: f["node2"]["software"].update(python="3.11.2"), [("error", "skew-python", ("node2",))]),
        (lambda f: package(f, "torch", "2.6.0", "node3"), [("error", "skew-torch", ("node3",))]),
        (lambda f: package(f, "torch", None, "node3"), [("error", "skew-torch", ("node3",))]),
        (lambda f: f["node2"]["software"].update(cuda="12.4"), [("error", "skew-cuda", ("node2",))]),
        (lambda f: package(f, "nccl", "2.21.5", "node4"), [("error", "skew-nccl", ("node4",))]),
        (lambda f: package(f, "flash_attn", "2.8.3", "node1"), [("error", "skew-flash-attn", ("node1",))]),
        (lambda f: package(f, "deepspeed", "0.19.8", "node1"), [("error", "skew-deepspeed", ("node1",))]),
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
def test_the_odd_node_is_named(spoil: Any, found: Any) -> None:
    assert spoilt(spoil) == found


def test_each_has_it_from_the_first_where_there_is_no_majority() -> None:
    assert spoilt(lambda f: package(f, "torch", "2.6.0", "node2"), count=2) == [("error", "skew-torch", ("node2",))]
    facts = cluster(2)
    package(facts, "torch", "2.6.0", "node2")
    [finding] = findings(facts)
    assert finding.found == "torch: node2 has 2.6.0; the others have 2.7.1"


def test_only_torchrun_needs_torch() -> None:
    assert spoilt(lambda f: package(f, "torch", None, *f), launcher="env") == []


def driver(facts: dict[str, Facts], version: str, *nodes: str) -> None:
    for node in nodes:
        facts[node]["gpus"]["driver"] = dict.fromkeys(("loaded", "library", "on_disk"), version)
        for device in facts[node]["gpus"]["devices"]:
            device["driver"] = version


def cuda(facts: dict[str, Facts], version: str | None) -> None:
    for one in facts.values():
        one["software"]["cuda"] = version


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (nothing, []),
        (lambda f: driver(f, "575.57.08", "node2"), [("warning", "skew-driver", ("node2",))]),
        (
            lambda f: f["node3"]["gpus"]["devices"][0].update(name="A100-SXM4-80GB"),
            [("warning", "skew-gpu", ("node3",))],
        ),
        # 535.54.03 is older than 535.183.01, and both run CUDA 12
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
def test_drivers_and_torch_must_fit(spoil: Any, found: Any) -> None:
    assert spoilt(spoil, gpu_count=2) == found


def test_versions_are_compared_as_numbers() -> None:
    assert version_tuple("535.183.01") > version_tuple("535.54.03")
