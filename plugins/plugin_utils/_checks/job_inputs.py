# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a job's arguments: checkpoints to resume from, the DeepSpeed configuration, and memory for what it offloads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, format_gib
from ansible_collections.muster.training.plugins.plugin_utils._checks.deepspeed_config import (
    MICRO,
    STEPS,
    argument_value,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._checks.system import output_options
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

RESUME_OPTION = re.compile(r"--?(resume|load)", re.IGNORECASE)
TRAINER_LIBRARIES = {"transformers", "trl", "peft", "accelerate"}
# Bytes per parameter in host memory: what DeepSpeed's Adam optimizer keeps in fp32 (values, momentum, variance), plus
# the parameters in half precision.
OPTIMIZER_BYTES, PARAMETER_BYTES = 12, 2
MODEL_SIZE = re.compile(r"(?<![\w.x×])([0-9]{1,4}(?:\.[0-9]{1,3})?)[bB](?![A-Za-z0-9])")
ACTIVE_SIZE = re.compile(r"[-_]A[0-9]")  # the number of active parameters in the name of a mixture-of-experts model
MODEL_OPTION = re.compile(r"--?(model|pretrained)[-_\w]*")
TRUE = ("true", "1", "yes")


def check_checkpoints(context: CheckContext) -> list[Finding]:
    """Check that the checkpoints named in the arguments exist on each node. Some scripts read them on only one rank."""
    checkpoints = {node.name: facts for node, facts in context.nodes_with("resumed_checkpoints")}
    outputs = output_options(context.job.args)
    findings = []
    for option in dict.fromkeys(option for facts in checkpoints.values() for option in facts):
        entries = {name: facts[option] for name, facts in checkpoints.items() if option in facts}
        missing = [name for name, entry in entries.items() if not entry["exists"]]
        unreadable = [name for name, entry in entries.items() if entry["exists"] and not entry["readable"]]
        path = next(iter(entries.values()))["path"]
        is_everywhere_missing = len(missing) == len(entries)
        if option in outputs or (is_everywhere_missing and not RESUME_OPTION.match(option)):
            continue  # the job will create it
        if missing:
            where = "on any node" if is_everywhere_missing else "there"
            findings.append(
                warning(
                    "checkpoint-missing",
                    missing,
                    problem=f"{option} is {path}, which does not exist {where}",
                    requirement="the checkpoint at the same path on all nodes: each rank reads it, or its own part "
                    "of it",
                    remedy="correct the argument, or put the checkpoint on a drive that all nodes mount "
                    "(ansible-playbook runs.yml lists earlier runs with their arguments)"
                    if is_everywhere_missing
                    else "copy it to these nodes, or put checkpoints on a drive that all nodes mount",
                )
            )
        if unreadable:
            findings.append(
                warning(
                    "checkpoint-missing",
                    unreadable,
                    problem=f"{option} is {path}, which {context.facts[unreadable[0]]['user']} cannot read",
                    requirement="a checkpoint that the job's user can read",
                    remedy=f"sudo chown -R {context.facts[unreadable[0]]['user']} {path} on the node",
                )
            )
        findings += check_shards(context, option, entries)
    return findings


def check_shards(context: CheckContext, option: str, entries: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Check that a DeepSpeed checkpoint has optimizer states for as many ranks as the run has."""
    ranks = {rank for entry in entries.values() for rank in entry["shards"]}
    world = context.table.world_size
    if not ranks or len(ranks) == world or max(ranks) >= 2 * len(ranks):
        return []
    missing = sorted(set(range(max(ranks) + 1)) - ranks)
    part = f"; those of {format_list(map(str, missing))} are missing" if missing else ""
    return [
        warning(
            "checkpoint-shards",
            [],
            problem=f"the checkpoint in {option} has the optimizer states of {len(ranks)} ranks{part}, but the run has "
            f"{world}",
            requirement="the number of ranks that wrote it: DeepSpeed does not redistribute ZeRO optimizer states",
            remedy="use that number (-e nnodes=N -e nproc_per_node=N), convert the checkpoint once with DeepSpeed's "
            "ds_to_universal.py, or load only the weights (load_optimizer_states=False)",
        )
    ]


def is_requested(arguments: tuple[str, ...], name: str) -> bool:
    """Return whether an argument such as --bf16 enables a precision."""
    value = argument_value(arguments, name)
    return value is not None and (value.lower() in TRUE or value.lower() not in ("false", "0", "no"))


def section_enabled(config: Mapping[str, Any], kind: str) -> bool | None:
    """Return whether a section of the configuration enables a precision, or None if it does not specify this."""
    section = config.get(kind)
    value = section.get("enabled") if isinstance(section, Mapping) else section
    return value if isinstance(value, bool) else None


def precision_problem(config: Mapping[str, Any], arguments: tuple[str, ...]) -> str:
    """Return how a configuration's precision conflicts with itself or with the script's arguments, or ""."""
    enabled = {kind: section_enabled(config, kind) for kind in ("fp16", "bf16")}
    if enabled["fp16"] and enabled["bf16"]:
        return "it enables both fp16 and bf16"
    mixed = argument_value(arguments, "mixed_precision")
    requested = {kind for kind in enabled if is_requested(arguments, kind) or mixed == kind}
    for kind, other in (("fp16", "bf16"), ("bf16", "fp16")):
        if kind in requested and enabled[other]:
            return f"it enables {other}, but the arguments request {kind}"
        if kind in requested and enabled[kind] is False and other not in requested:
            return f"it disables {kind}, but the arguments request it"
    return ""


def size_problems(config: Mapping[str, Any], arguments: tuple[str, ...]) -> list[str]:
    """Return the sizes that differ between the configuration and the arguments of the Hugging Face trainer."""
    problems = []
    for key, option in ((MICRO, "per_device_train_batch_size"), (STEPS, "gradient_accumulation_steps")):
        value, configured = argument_value(arguments, option), config.get(key)
        if value is not None and value.isdigit() and isinstance(configured, int) and configured != int(value):
            problems.append(f"{key} is {configured}, but --{option} is {value}")
    return problems


def deepspeed_remedy(problem: str, has_trainer: bool) -> str:
    """Return the remedy for such a problem. has_trainer: whether the job imports a trainer, which replaces "auto"."""
    if problem.startswith("it enables both"):
        return "disable one of them"
    if has_trainer:
        return 'set "auto" in the configuration, so that the trainer takes the value from the argument'
    return "change the configuration or the argument, so that both request the same precision"


def check_deepspeed_arguments(context: CheckContext) -> list[Finding]:
    """Check that the DeepSpeed configuration and the script's arguments agree, as the Hugging Face trainer requires."""
    configs = [
        facts["config"] for _node, facts in context.nodes_with("deepspeed_config") if facts["config"] is not None
    ]
    if not configs:
        return []
    libraries = {name for _node, imports in context.nodes_with("imports") for name in imports["libraries"]}
    contradiction = precision_problem(configs[0], context.job.args)
    has_trainer = bool(libraries & TRAINER_LIBRARIES)
    is_certain = contradiction.startswith("it enables both") or has_trainer
    problems = [contradiction] if contradiction else []
    if has_trainer:
        problems += size_problems(configs[0], context.job.args)
    make_finding = error if is_certain else warning
    return [
        make_finding(
            "deepspeed-arguments",
            [],
            problem=f"the DeepSpeed configuration contradicts itself or the job's arguments: {problem}",
            requirement="the same values in both",
            remedy=deepspeed_remedy(problem, has_trainer),
        )
        for problem in problems
    ]


def model_parameters(arguments: tuple[str, ...]) -> float:
    """Return the number of parameters given in the name of the job's model, such as Llama-3.1-70B, or 0 if unknown.

    Names of mixtures of experts, such as 8x7B and 30B-A3B, are unknown.
    """
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if MODEL_OPTION.fullmatch(option):
            value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
            sizes = MODEL_SIZE.findall(value.rpartition("/")[2])
            if len(sizes) == 1 and not ACTIVE_SIZE.search(value):
                return float(sizes[0]) * 1e9
    return 0.0


def trains_adapter(arguments: tuple[str, ...]) -> bool:
    """Return whether a job trains only a small number of parameters, as with LoRA."""
    return any(
        re.search(r"lora|peft|adapter|finetuning[-_]type|freeze|qlora", argument, re.I) for argument in arguments
    )


def check_host_memory(context: CheckContext) -> list[Finding]:
    """Check that the nodes have enough memory for what DeepSpeed offloads, if the model name includes the model
    size.
    """
    parameters = model_parameters(context.job.args)
    if not parameters or trains_adapter(context.job.args):
        return []
    small: dict[str, tuple[float, float]] = {}
    for node, facts in context.nodes_with("deepspeed_config"):
        zero = (facts["config"] or {}).get("zero_optimization")
        system = context.facts[node.name].get("system")
        if not isinstance(zero, Mapping) or not system:
            continue
        per_parameter = 0
        for key, size in (("offload_optimizer", OPTIMIZER_BYTES), ("offload_param", PARAMETER_BYTES)):
            section = zero.get(key)
            if isinstance(section, Mapping) and section.get("device") == "cpu":
                ratio = section.get("ratio", 1)
                per_parameter += size if ratio == 1 else 0
        needed = per_parameter * parameters * node.slots / context.table.world_size
        total = system["memory"]["total_bytes"]
        if needed > total:
            small[node.name] = (needed, total)
    if not small:
        return []
    needed, total = next(iter(small.values()))
    return [
        warning(
            "host-memory-small",
            small,
            problem=f"DeepSpeed offloads about {format_gib(needed)} per node to CPU memory "
            f"({parameters / 1e9:g} billion parameters), but the node has {format_gib(total)}",
            requirement=("enough CPU memory for what the node's ranks offload; otherwise the kernel kills the job"),
            remedy="use more nodes (-e nnodes=N) or machines with more memory, or offload to nvme",
        )
    ]


def check_job_inputs(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [*check_checkpoints(context), *check_deepspeed_arguments(context), *check_host_memory(context)]
