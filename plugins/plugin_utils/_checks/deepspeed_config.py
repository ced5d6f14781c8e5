# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How DeepSpeed and Hugging Face's trainer interpret a job's DeepSpeed configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# Refused by DeepSpeed since 0.19.8 (runtime/config.py, _REMOVED_TOP_LEVEL_CONFIG_KEYS).
REMOVED = (
    *("nebula", "compression_training", "amp", "quantize_training", "sparse_gradients", "eigenvalue"),
    *("sparse_attention", "elasticity", "graph_harvesting", "curriculum_learning", "progressive_layer_drop"),
)
REMOVED_SINCE = (0, 19, 8)


def argument_value(arguments: Sequence[str], name: str) -> str | None:
    """Return an argument's value as Hugging Face's trainer sees it; "true" for a bare flag."""
    value = None
    for index, argument in enumerate(arguments):
        option, equals, inline_value = argument.partition("=")
        if option.replace("-", "_") == "__" + name:
            following = next(iter(arguments[index + 1 : index + 2]), "")
            value = inline_value if equals else following if following and not following.startswith("-") else "true"
    return value


def argument_number(arguments: Sequence[str], name: str, default: int) -> int | None:
    """Return a number from the arguments, or None if the value is not a number."""
    value = argument_value(arguments, name)
    if value is None:
        return default
    return int(value) if re.match(r"[0-9]{1,9}\Z", value) else None


def resolve_sizes(config: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the three batch sizes, with "auto" resolved as Hugging Face's trainer does; None means not set or
    unknown.
    """
    sizes = {name: config.get(name) for name in (BATCH, MICRO, STEPS)}
    if sizes[MICRO] == "auto":
        sizes[MICRO] = argument_number(arguments, "per_device_train_batch_size", 8)  # the trainer's default
    if sizes[STEPS] == "auto":
        sizes[STEPS] = argument_number(arguments, "gradient_accumulation_steps", 1)
    return sizes


def complete_sizes(batch: int | None, micro: int | None, steps: int | None, world: int) -> tuple[int, int, int] | None:
    """Return the three sizes as DeepSpeed completes them (runtime/config.py, _set_batch_related_parameters).

    None if there is nothing to complete them from.
    """
    if batch is not None and micro is not None:
        return batch, micro, steps if steps is not None else batch // micro // world
    if batch is not None:
        return batch, batch // world // (steps or 1), steps if steps is not None else 1
    if micro is not None:
        steps = steps if steps is not None else 1
        return micro * steps * world, micro, steps
    return None


def check_batch_sizes(config: Mapping[str, Any], arguments: Sequence[str], world: int) -> tuple[str, str, str] | None:
    """Return the problem with the batch sizes for this number of ranks (found, needed, do), or None.

    train_batch_size must be the product of the other two and the number of ranks, or DeepSpeed stops.
    """
    sizes = resolve_sizes(config, arguments)
    configured = ", ".join(f"{name} {json.dumps(config[name])}" for name in (BATCH, MICRO, STEPS) if name in config)
    if any(value == "auto" for value in sizes.values()):  # the trainer makes the sizes fit
        return None
    for name, value in sizes.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            return (
                f"{name} is {json.dumps(value)[:60]}",
                "a positive integer",
                f"correct {name} in the configuration",
            )
    triple = complete_sizes(sizes[BATCH], sizes[MICRO], sizes[STEPS], world)
    if triple is None:
        if config.get(MICRO) == "auto":
            return None
        todo = f"set {MICRO} to the largest size that fits into a GPU's memory"
        return f"neither {BATCH} nor {MICRO} is set", f"at least one of {BATCH} and {MICRO}", todo
    batch, micro, steps = triple
    if micro >= 1 and steps >= 1 and batch == micro * steps * world:
        return None
    mismatch = f"{configured}: {micro} * {steps} * {world} ranks is {micro * steps * world}, not {batch}"
    return (
        mismatch,
        f"{BATCH} = {MICRO} * {STEPS} * {world} ranks",
        suggest_sizes(batch, max(1, micro), max(1, steps), world),
    )


def suggest_sizes(batch: int, micro: int, steps: int, world: int) -> str:
    """Suggest consistent sizes, starting with those that keep the batch size, and thus the training result."""
    suggestions = []
    if batch % (micro * world) == 0:
        suggestions.append(f"{STEPS} to {batch // (micro * world)}")
    elif batch % world == 0 and batch >= world:
        size = next(size for size in range(min(micro, batch // world), 0, -1) if batch // world % size == 0)
        suggestions.append(f"{MICRO} to {size} and {STEPS} to {batch // world // size}")
    suggestions.append(f"{BATCH} to {micro * steps * world}")
    if batch % (micro * steps) == 0:
        suggestions.append(f"the number of ranks to {batch // (micro * steps)}, using nnodes or nproc_per_node")
    return f"set {', or '.join(suggestions)}"


def is_enabled(config: Mapping[str, Any], arguments: Sequence[str], kind: str) -> bool:
    """Return whether fp16 or bf16 is enabled. For "auto", the trainer argument of that name decides."""
    section = config.get(kind, {})
    enabled = section.get("enabled", False) if isinstance(section, dict) else section
    if enabled == "auto":
        return (argument_value(arguments, kind) or "false").lower() in ("true", "1", "yes")
    return enabled is True
