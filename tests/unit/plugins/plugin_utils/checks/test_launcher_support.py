"""Requirements of a launcher: programs, packages, and the DeepSpeed configuration."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.launcher_support import check_executable
from tests.unit.healthy import Facts, Spoil, cluster, findings, spoilt

DEEPSPEED: dict[str, Any] = {"launcher": "deepspeed", "args": ["--deepspeed_config", "ds.json"]}


def with_packages(**packages: str) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        for item in facts.values():
            item["software"]["packages"].update(packages)

    return spoil


def with_config(config: dict[str, Any], **packages: str) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        with_packages(**{"deepspeed": "0.19.7", **packages})(facts)
        for item in facts.values():
            item["deepspeed_config"] = {"path": "/home/ubuntu/ds.json", "config": dict(config), "error": ""}

    return spoil


def able(capabilities: dict[str, tuple[str, list[int] | None]]) -> Spoil:
    """Return GPUs with these names and compute capabilities, by node."""

    def spoil(facts: dict[str, Facts]) -> None:
        for name, (model, capability) in capabilities.items():
            for device in facts[name]["gpus"]["devices"]:
                device.update(name=model, compute_capability=capability)

    return spoil


def both(*spoils: Spoil) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        for item in spoils:
            item(facts)

    return spoil


def programs(**nodes: list[str]) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        for name, installed in nodes.items():
            facts[name]["programs"] = {program: f"/usr/bin/{program}" for program in installed}

    return spoil


@pytest.mark.parametrize(
    ("options", "spoil", "result"),
    [
        ({"launcher": "mpirun"}, programs(node1=["mpirun"], node2=["orted"]), []),
        ({"launcher": "mpirun"}, programs(node1=["orted"], node2=["orted"]), [("program-missing", ("node1",))]),
        ({"launcher": "mpirun"}, programs(node1=["mpirun"], node2=["mpirun"]), [("program-missing", ("node2",))]),
        (
            {"launcher": "deepspeed", "deepspeed_launcher": "pdsh"},
            both(programs(node1=[], node2=[]), with_packages(deepspeed="0.19.8")),
            [("program-missing", ("node1",))],
        ),
        (
            {"launcher": "deepspeed", "deepspeed_launcher": "pdsh"},
            both(programs(node1=["pdsh"], node2=[]), with_packages(deepspeed="0.10.0")),
            [],
        ),
        ({"launcher": "deepspeed"}, with_packages(deepspeed="0.19.8"), []),
        ({"launcher": "deepspeed"}, with_packages(deepspeed="0.14.4"), [("deepspeed-too-old", ("node1", "node2"))]),
        ({"launcher": "deepspeed"}, with_packages(), [("package-missing", ("node1", "node2"))]),
        ({"launcher": "accelerate"}, with_packages(), [("package-missing", ("node1", "node2"))]),
        ({"launcher": "accelerate"}, with_packages(accelerate="1.15.0"), []),
    ],
)
def test_missing_or_old_software_of_a_launcher_is_reported(
    options: dict[str, Any], spoil: Spoil, result: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert [(identity, nodes) for _severity, identity, nodes in spoilt(spoil, count=2, **options)] == result


@pytest.mark.parametrize(
    ("launcher", "interpreter", "command"),
    [
        ("accelerate", "python3", "pip install accelerate"),
        ("deepspeed", "python3", "ansible-playbook site.yml --tags deepspeed -e deepspeed_enabled=true"),
        ("deepspeed", "/opt/job/bin/python", "`/opt/job/bin/python -m pip install deepspeed` on each node"),
    ],
)
def test_missing_package_is_reported_with_reason_and_install_command(
    launcher: str, interpreter: str, command: str
) -> None:
    (result,) = findings(cluster(2), launcher=launcher, interpreter=interpreter)
    assert result.problem == f"/home/ubuntu/venv/bin/python has no {launcher}, but launch_launcher is {launcher}"
    assert result.requirement == f"{launcher} in the environment of the job's interpreter"
    assert result.remedy == f"install it there ({command}), or set launch_python to the interpreter that has it"


def test_pdsh_needs_the_same_interpreter_path_on_all_nodes() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        both(programs(node1=["pdsh"]), with_packages(deepspeed="0.19.8"))(facts)
        facts["node3"]["interpreter"] = "/opt/venv/bin/python"

    options: dict[str, Any] = {"launcher": "deepspeed", "deepspeed_launcher": "pdsh"}
    assert spoilt(spoil, **options) == [("error", "interpreter-differs", ("node3",))]
    assert spoilt(spoil, launcher="deepspeed") == []


def test_program_without_python_must_be_executable() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for name, item in facts.items():
            item["script"]["executable"] = name != "node2"

    assert spoilt(spoil, no_python=True) == [("error", "script-not-executable", ("node2",))]
    assert spoilt(spoil) == []


@pytest.mark.parametrize(
    ("source", "command"),
    [("/me/toy", "chmod +x /me/toy/entry.sh on this machine, or "), ("", "chmod +x /code/entry.sh on the node, or ")],
)
def test_program_is_made_executable_in_its_source(source: str, command: str) -> None:
    script = {"path": "/code/./entry.sh", "is_file": True, "executable": False}
    context: Any = SimpleNamespace(
        job=SimpleNamespace(no_python=True, script="./entry.sh"),
        nodes_with=lambda _part: [(SimpleNamespace(name="node1"), script)],
        facts={"node1": {"script": script}},
        code=SimpleNamespace(source=source),
    )
    (finding,) = check_executable(context)
    assert finding.problem == "/code/entry.sh is not executable" and finding.remedy.startswith(command)


def test_deepspeed_batch_sizes_are_checked_before_the_start() -> None:
    assert spoilt(with_config({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8}), 4, 2, **DEEPSPEED) == []
    short = with_config({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16})
    assert spoilt(short, 4, 2, **DEEPSPEED) == [("error", "deepspeed-batch", ())]
    assert spoilt(short, 4, 2, launcher="torchrun") == [("error", "deepspeed-batch", ())]  # also in torchrun's jobs


def test_batch_mismatch_with_tensor_parallelism_is_only_a_warning() -> None:
    config = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16, "tensor_parallel": {"autotp_size": 2}}
    assert spoilt(with_config(config), 4, 2, **DEEPSPEED) == [("warning", "deepspeed-batch", ())]


FP16 = {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}}
BF16 = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
GTX, RTX = ("GeForce GTX 1080", [6, 1]), ("GeForce RTX 3070", [8, 6])


def test_fp16_on_gpus_that_do_not_support_it_names_the_nodes() -> None:
    mixed = able({"node1": RTX, "node2": GTX, "node3": RTX, "node4": GTX})
    spoil = both(with_config(FP16), mixed)
    assert ("error", "deepspeed-precision", ("node2", "node4")) in spoilt(spoil, 4, 1, **DEEPSPEED)
    facts = cluster(4, 1)
    spoil(facts)
    (item,) = [finding for finding in findings(facts, **DEEPSPEED) if finding.id == "deepspeed-precision"]
    assert "node2 has GeForce GTX 1080 with compute capability 6.1" in item.problem
    assert (
        item.remedy == "train in fp32 (fp16 and bf16 both disabled), or use only the other nodes: -e nodes=node1,node3"
    )
    allowed = {**DEEPSPEED, "environment": {"DS_ALLOW_DEPRECATED_FP16": "1"}}
    assert not [item for item in findings(facts, **allowed) if item.id == "deepspeed-precision"]


def test_fp16_on_a_node_without_a_working_gpu_is_an_error() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        both(with_config(FP16), able({"node1": RTX}))(facts)
        facts["node2"]["gpus"].update(devices=[])

    assert ("error", "deepspeed-precision", ("node2",)) in spoilt(spoil, 2, 1, **DEEPSPEED)


@pytest.mark.parametrize(
    ("config", "gpus", "severities"),
    [
        (FP16, {"node1": RTX, "node2": RTX}, []),
        (FP16, {"node1": ("Tesla V100", [7, 0]), "node2": ("Tesla V100", [7, 0])}, []),
        (FP16, {"node1": ("Tesla V100", None), "node2": ("Tesla V100", None)}, []),  # an old driver does not report it
        (BF16, {"node1": RTX, "node2": RTX}, []),
        (BF16, {"node1": ("Tesla V100", [7, 0]), "node2": ("Tesla V100", [7, 0])}, ["warning"]),
        ({"train_micro_batch_size_per_gpu": 1}, {"node1": GTX, "node2": GTX}, []),
    ],
)
def test_precision_is_checked_against_the_gpus(
    config: dict[str, Any], gpus: dict[str, Any], severities: list[str]
) -> None:
    result = spoilt(both(with_config(config), able(gpus)), 2, 1, **DEEPSPEED)
    assert [severity for severity, identity, _nodes in result if identity == "deepspeed-precision"] == severities


@pytest.mark.parametrize(
    ("spoil", "nodes"),
    [
        (lambda facts: facts["node2"]["deepspeed_config"].update(config=None, error="No such file"), ("node2",)),
        (lambda facts: facts["node3"]["deepspeed_config"]["config"].update(steps_per_print=7), ("node3",)),
    ],
)
def test_missing_or_differing_deepspeed_config_is_an_error(
    spoil: Callable[[dict[str, Facts]], None], nodes: tuple[str, ...]
) -> None:
    combined = both(with_config({"train_micro_batch_size_per_gpu": 1}), spoil)
    assert spoilt(combined, **DEEPSPEED) == [("error", "deepspeed-config", nodes)]


def test_setting_removed_in_a_newer_deepspeed_is_an_error() -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "elasticity": {"enabled": True}}
    assert spoilt(with_config(config), 2, **DEEPSPEED) == []
    newer = with_config(config, deepspeed="0.19.8")
    assert spoilt(newer, 2, **DEEPSPEED) == [("error", "deepspeed-config", ("node1", "node2"))]
    in_image = both(newer, programs(node1=["docker"], node2=["docker"]))
    assert spoilt(in_image, 2, **DEEPSPEED, image="deepspeed:0.16") == []
