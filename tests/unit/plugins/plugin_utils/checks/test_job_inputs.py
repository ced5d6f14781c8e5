"""A job's inputs: checkpoints, the DeepSpeed configuration, and memory for offloaded state."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.job_inputs import model_parameters
from tests.unit.healthy import GIB, Facts, cluster, findings

HERE = {"path": "/mnt/runs/last.pt", "exists": True, "readable": True, "shards": []}
MISSING = {**HERE, "exists": False, "readable": False}


@pytest.mark.parametrize(
    ("option", "entries", "nodes", "text"),
    [
        ("--resume", [HERE, HERE], (), ""),
        ("--resume", [HERE, MISSING], ("node2",), "which does not exist there"),
        ("--resume_from_checkpoint", [MISSING, MISSING], ("node1", "node2"), "does not exist on any node"),
        ("--load", [HERE, {**HERE, "readable": False}], ("node2",), "which ubuntu cannot read"),
        ("--checkpoint", [MISSING, MISSING], (), ""),  # the job may write to it
        ("--checkpoint", [HERE, MISSING], ("node2",), "which does not exist there"),
        ("--checkpoint_dir", [HERE, MISSING], (), ""),
    ],
)
def test_checkpoint_must_be_visible_on_all_nodes(
    option: str, entries: list[dict[str, Any]], nodes: tuple[str, ...], text: str
) -> None:
    facts = cluster(2)
    for node, entry in zip(facts.values(), entries, strict=True):
        node["resumed_checkpoints"] = {option: entry}
    result = findings(facts, args=[option, HERE["path"]])
    assert [(item.severity, item.id, item.nodes) for item in result] == (
        [("warning", "checkpoint-missing", nodes)] if nodes else []
    )
    assert all(text in item.problem and option in item.problem for item in result)


@pytest.mark.parametrize(
    ("shards", "problem"),
    [
        ([[0, 1], [2, 3]], ""),
        ([[0, 1, 2, 3], [0, 1, 2, 3]], ""),
        ([[0, 1, 2, 3, 4, 5, 6, 7]] * 2, "the optimizer states of 8 ranks, but the run has 4"),
        ([[0, 1], [3]], "the optimizer states of 3 ranks; those of 2 are missing"),
    ],
)
def test_deepspeed_checkpoint_must_have_the_states_of_all_ranks(shards: list[list[int]], problem: str) -> None:
    facts = cluster(2, gpu_count=2)
    for node, ranks in zip(facts.values(), shards, strict=True):
        node["resumed_checkpoints"] = {"--load": {**HERE, "shards": ranks}}
    result = findings(facts, args=["--load", "/mnt/runs"])
    assert [item.id for item in result] == (["checkpoint-shards"] if problem else [])
    assert all(problem in item.problem for item in result)


def with_config(facts: dict[str, Facts], config: dict[str, Any], *libraries: str) -> None:
    for node in facts.values():
        full = {"train_micro_batch_size_per_gpu": 1, **config}
        node["deepspeed_config"] = {"path": "/home/ubuntu/ds.json", "config": full, "error": ""}
        node["imports"]["libraries"] = list(libraries)
        node["gpus"]["devices"] = [{**device, "compute_capability": [9, 0]} for device in node["gpus"]["devices"]]


FP16, BF16 = {"fp16": {"enabled": True}}, {"bf16": {"enabled": True}}


@pytest.mark.parametrize(
    ("config", "args", "libraries", "severity", "text"),
    [
        (BF16, ["--bf16"], ["transformers"], "", ""),
        (BF16, ["--bf16", "true"], ["transformers"], "", ""),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, ["--bf16"], ["transformers"], "", ""),
        (FP16, [], ["deepspeed"], "", ""),
        (FP16, ["--bf16", "false"], ["transformers"], "", ""),
        ({**FP16, **BF16}, [], ["deepspeed"], "error", "both fp16 and bf16"),
        (FP16, ["--bf16"], ["transformers"], "error", "it enables fp16, but the arguments request bf16"),
        (FP16, ["--bf16"], ["deepspeed"], "warning", "it enables fp16, but the arguments request bf16"),
        (BF16, ["--mixed_precision=fp16"], ["accelerate"], "error", "it enables bf16, but the arguments request fp16"),
        ({"bf16": {"enabled": False}}, ["--bf16"], ["transformers"], "error", "it disables bf16"),
        (
            {"gradient_accumulation_steps": 4},
            ["--gradient_accumulation_steps", "8"],
            ["transformers"],
            "error",
            "gradient_accumulation_steps is 4, but --gradient_accumulation_steps is 8",
        ),
        ({"gradient_accumulation_steps": 4}, ["--gradient_accumulation_steps", "8"], ["deepspeed"], "", ""),
    ],
)
def test_deepspeed_configuration_must_agree_with_the_arguments(
    config: dict[str, Any], args: list[str], libraries: list[str], severity: str, text: str
) -> None:
    facts = cluster(2, gpu_count=8)
    with_config(facts, config, *libraries)
    result = [
        item for item in findings(facts, args=["--deepspeed", "ds.json", *args]) if item.id == "deepspeed-arguments"
    ]
    assert [item.severity for item in result] == ([severity] if severity else [])
    assert all(text in item.problem for item in result)
    is_replaced = severity == "error" and "both" not in text  # "auto" means something only to a trainer
    assert all(('set "auto"' in item.remedy) == is_replaced for item in result)


@pytest.mark.parametrize(
    ("value", "billions"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", 70),
        ("/models/Qwen2.5-0.5B", 0.5),
        ("mistralai/Mixtral-8x7B-v0.1", 0),
        ("gpt2", 0),
        ("Qwen/Qwen3-30B-A3B", 0),
        ("pythia-6.9b", 6.9),
    ],
)
def test_number_of_parameters_is_taken_from_unambiguous_names(value: str, billions: float) -> None:
    assert model_parameters(("--model_name_or_path", value)) == pytest.approx(billions * 1e9)


OFFLOAD = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
LARGE = ["--deepspeed", "ds.json", "--model_name_or_path", "meta-llama/Llama-3.1-70B"]


@pytest.mark.parametrize(
    ("config", "args", "memory", "is_small"),
    [
        (OFFLOAD, LARGE, 512, False),
        (OFFLOAD, LARGE, 256, True),
        ({"zero_optimization": {"stage": 3}}, LARGE, 64, False),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, LARGE, 64, False),
        (OFFLOAD, [*LARGE, "--use_lora", "true"], 64, False),
        (OFFLOAD, ["--deepspeed", "ds.json", "--model_name_or_path", "gpt2"], 64, False),
    ],
)
def test_memory_must_hold_the_offloaded_state(
    config: dict[str, Any], args: list[str], memory: int, is_small: bool
) -> None:
    facts = cluster(2, gpu_count=8)
    with_config(facts, config, "transformers")
    for node in facts.values():
        node["system"]["memory"]["total_bytes"] = memory * GIB
    result = [item for item in findings(facts, args=args) if item.id == "host-memory-small"]
    assert [item.severity for item in result] == ["warning"] * is_small
    assert all("391 GiB per node" in item.problem and "70 billion" in item.problem for item in result)
