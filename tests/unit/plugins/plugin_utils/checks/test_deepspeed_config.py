"""Validation of DeepSpeed configurations by DeepSpeed's own rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._checks.deepspeed_config import (
    check_batch_sizes,
    is_enabled,
    suggest_sizes,
)

T, M, G = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


@pytest.mark.parametrize(
    ("config", "world"),
    [
        ({T: 64, M: 4, G: 2}, 8),
        ({T: 64, M: 4}, 8),
        ({M: 4, G: 3}, 5),
        ({M: 4}, 7),
        ({T: 64}, 8),
        ({T: "auto", M: "auto", G: "auto"}, 5),
        ({T: "auto", M: 4, G: "auto"}, 5),
        ({M: "auto", G: "auto"}, 5),
    ],
)
def test_valid_batch_sizes_have_no_problem(config: dict[str, Any], world: int) -> None:
    assert check_batch_sizes(config, [], world) is None


@pytest.mark.parametrize(
    ("config", "world", "result", "todo"),
    [
        (
            {T: 256, M: 8},
            24,
            "train_batch_size 256, train_micro_batch_size_per_gpu 8: 8 * 1 * 24 ranks is 192, not 256",
            "set train_batch_size to 192, or the number of ranks to 32, using nnodes or nproc_per_node",
        ),
        (
            {T: 64, M: 4, G: 1},
            8,
            "4 * 1 * 8 ranks is 32, not 64",
            "set gradient_accumulation_steps to 2, or train_batch_size to 32, or the number of ranks to 16",
        ),
        (
            {T: 24, M: 16, G: 1},
            4,
            "16 * 1 * 4 ranks is 64, not 24",
            "set train_micro_batch_size_per_gpu to 6 and gradient_accumulation_steps to 1, or train_batch_size to 64",
        ),
        ({T: 4}, 8, "0 * 1 * 8 ranks is 0, not 4", "set train_batch_size to 8"),
        ({}, 8, "neither train_batch_size nor train_micro_batch_size_per_gpu is set", "memory"),
        ({G: 2}, 8, "neither train_batch_size nor", "memory"),
        ({M: 0}, 8, "train_micro_batch_size_per_gpu is 0", "correct"),
        ({T: "64"}, 8, 'train_batch_size is "64"', "correct"),
        ({T: True}, 8, "train_batch_size is true", "correct"),
    ],
)
def test_invalid_batch_sizes_are_reported_with_a_remedy(
    config: dict[str, Any], world: int, result: str, todo: str
) -> None:
    problem = check_batch_sizes(config, [], world)
    assert problem is not None
    assert result in problem[0] and todo in problem[2]


def test_auto_uses_the_values_of_the_trainer() -> None:
    config = {T: 64, M: "auto", G: "auto"}
    arguments = ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps=2"]
    assert check_batch_sizes(config, arguments, 8) is None
    problem = check_batch_sizes(config, arguments, 4)
    assert problem is not None and "4 * 2 * 4 ranks is 32, not 64" in problem[0]
    assert check_batch_sizes(config, [], 8) is None, "8 a device and 1 step are the trainer's defaults"


sizes = st.integers(1, 64)


@given(sizes, sizes, sizes, st.integers(1, 40))
def test_proposed_batch_sizes_are_valid(batch: int, micro: int, steps: int, world: int) -> None:
    config = {T: batch, M: micro, G: steps}
    if check_batch_sizes(config, [], world) is None:
        return
    for suggestion in suggest_sizes(batch, micro, steps, world).removeprefix("set ").split(", or "):
        if suggestion.startswith("the number of ranks to "):
            assert check_batch_sizes(config, [], int(suggestion.split()[5].rstrip(","))) is None
            continue
        arguments = suggestion.replace(" and ", " ").split()
        changed = {**config, **{arguments[at]: int(arguments[at + 2]) for at in range(0, len(arguments), 3)}}
        assert check_batch_sizes(changed, [], world) is None, suggestion


@pytest.mark.parametrize(
    ("config", "arguments", "expected"),
    [
        ({"fp16": {"enabled": True}}, [], True),
        ({"fp16": {"enabled": False}}, [], False),
        ({"fp16": {}}, [], False),
        ({}, ["--fp16", "true"], False),
        ({"fp16": {"enabled": "auto"}}, ["--fp16", "True"], True),
        ({"fp16": {"enabled": "auto"}}, ["--fp16"], True),
        ({"fp16": {"enabled": "auto"}}, ["--fp16", "false"], False),
        ({"fp16": {"enabled": "auto"}}, ["--bf16", "true"], False),
    ],
)
def test_fp16_is_read_from_config_and_trainer_arguments(
    config: dict[str, Any], arguments: list[str], expected: bool
) -> None:
    assert is_enabled(config, arguments, "fp16") is expected
