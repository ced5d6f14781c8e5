# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for the process group, for starting ranks, and for the wrapper around the model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.muster.training.plugins.plugin_utils._script_check.frameworks import ALL, DEEPSPEED, LIGHTNING
from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import (
    Module,
    argument,
    has_unpacked_keywords,
    keyword_value,
    string_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import (
    Program,
    Site,
    name_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import Rule

FIXED_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
WRAPPERS = (
    *("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "parallelize_module", "replicate"),
    *("PipelineStage", "ZeroRedundancyOptimizer", "all_reduce_coalesced", "reduce_scatter"),
)
SPAWNED = re.compile(r"(?i)spawn|distributed|launch|environ|\benv\b|slurm|torchrun|RANK")


def check_group_missing(program: Program) -> Iterator[RuleMatch]:
    """Report a script that trains but never connects its ranks."""
    call = program.first_backward
    if call is None or program.is_distributed:
        return
    yield program.match(
        call.module,
        call.node,
        "no process group is initialized: each rank would train its own model on all of the data",
        "at the start of the program: torch.distributed.init_process_group()",
    )


def check_group_fixed(program: Program) -> Iterator[RuleMatch]:
    """Report hard-coded addresses and ranks, which the launcher sets."""
    change = "torch.distributed.init_process_group(), which reads what the launcher has set"
    for call in program.calls_of("init_process_group"):
        for position, name in ((3, "world_size"), (4, "rank")):
            value = argument(call.node, position, name)
            if isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value >= 0:
                yield program.match(call.module, call.node, f"{name} is hard-coded to {value.value}", change)
        method = argument(call.node, 1, "init_method")
        if method is None:
            continue
        addresses = {
            string_of(site.node)
            for site in program.reachable(call.module, method)
            if re.match(r"tcp://[\w.:\[\]-]+:\d+$|file:///\w", string_of(site.node))
        }
        if addresses:
            problem = f"init_method is hard-coded to {min(addresses)}, the address of one machine"
            yield program.match(call.module, call.node, problem, change)
    for module in program.modules:
        for node in module.nodes:
            if isinstance(node, ast.Assign):
                yield from _fixed_variables(program, module, node)


def _fixed_variables(program: Program, module: Module, node: ast.Assign) -> Iterator[RuleMatch]:
    for target in node.targets:
        if not isinstance(target, ast.Subscript) or name_of(target.value) != "environ":
            continue
        name = string_of(target.slice)
        value = node.value
        if isinstance(value, ast.Call) and module.qualified_name(value.func) == "str" and value.args:
            value = value.args[0]
        if name not in FIXED_VARIABLES or not isinstance(value, ast.Constant) or is_conditional(module, node):
            continue
        if not program.is_used(Site(module, node)):
            continue
        text = str(value.value)
        yield program.match(
            module,
            node,
            f"{name} is hard-coded to {text}, which overrides the launcher's value",
            f'os.environ.setdefault("{name}", "{text}")',
        )


def is_conditional(module: Module, node: ast.AST) -> bool:
    """Return whether a condition that encloses a node checks how the script was started."""
    return any(
        isinstance(parent, ast.If) and child is not parent.test and SPAWNED.search(ast.unparse(parent.test))
        for child, parent in module.ancestors(node)
    )


def check_spawn(program: Program) -> Iterator[RuleMatch]:
    """Report scripts that start a node's ranks themselves, which the launcher already does."""
    for call in program.calls_of("spawn", "start_processes"):
        if not call.name.startswith(("torch.multiprocessing.", "multiprocessing.", "torch.distributed.")):
            continue
        if is_conditional(call.module, call.node):
            continue
        function = ast.unparse(call.node.args[0]) if call.node.args else "main"
        yield program.match(
            call.module,
            call.node,
            "the script starts processes itself, in each process that the launcher starts",
            f'{function}(int(os.environ["LOCAL_RANK"]), ...) instead of {call.name.rpartition(".")[2]}; or launch it '
            "with --launcher env, which starts one process per node",
        )


def check_group_open(program: Program) -> Iterator[RuleMatch]:
    """Report a process group that is never destroyed."""
    if program.uses("destroy_process_group"):
        return
    for call in program.calls_of("init_process_group"):
        yield program.match(
            call.module,
            call.node,
            "the process group is never destroyed: at the end, ranks may report errors or wait for each other",
            "at the end of the program: torch.distributed.destroy_process_group()",
        )
        return


def check_backend(program: Program) -> Iterator[RuleMatch]:
    """Report a fixed backend that needs GPUs."""
    for call in program.calls_of("init_process_group"):
        if string_of(argument(call.node, 0, "backend")) != "nccl":
            continue
        if any(
            isinstance(parent, ast.If) and child is not parent.test and "cuda" in ast.unparse(parent.test)
            for child, parent in call.module.ancestors(call.node)
        ):
            continue
        yield program.match(
            call.module,
            call.node,
            "the backend is always nccl, which fails on machines without GPUs",
            'torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        )


def check_model_not_wrapped(program: Program) -> Iterator[RuleMatch]:
    """Report a model whose gradients are not exchanged between ranks."""
    call = program.first_backward
    if call is None or not program.initializes_group or program.refers_to(*WRAPPERS):
        return
    if program.refers_to("all_reduce") and program.refers_to("grad"):  # the script exchanges gradients itself
        return
    yield program.match(
        call.module,
        call.node,
        "ranks do not exchange gradients: the model is not wrapped, so each rank trains its own model",
        "model = DistributedDataParallel(model.to(device), device_ids=[local_rank])",
    )


def check_data_parallel(program: Program) -> Iterator[RuleMatch]:
    """Report DataParallel, which uses the GPUs of a single process only."""
    if program.uses("DistributedDataParallel", "FullyShardedDataParallel"):
        return
    for call in program.calls_of("DataParallel"):
        if call.name.startswith("torch."):
            model = ast.unparse(call.node.args[0]) if call.node.args else "model"
            yield program.match(
                call.module,
                call.node,
                "DataParallel uses the GPUs of one process, not those of other ranks and nodes",
                f"DistributedDataParallel({model}, device_ids=[local_rank])",
            )


def check_lightning_nodes(program: Program) -> Iterator[RuleMatch]:
    """Report a Lightning Trainer that is not told the number of nodes."""
    for call in program.calls_of("Trainer", "Fabric"):
        if not call.name.startswith(("lightning", "pytorch_lightning")) or has_unpacked_keywords(call.node):
            continue
        value = keyword_value(call.node, "num_nodes")
        if value is not None and not isinstance(value, ast.Constant):
            continue
        problem = "num_nodes is not set, so Lightning expects 1" if value is None else "num_nodes is a constant"
        yield program.match(
            call.module,
            call.node,
            problem,
            'devices = int(os.environ.get("LOCAL_WORLD_SIZE") or torch.cuda.device_count() or 1); '
            f'{call.last}(..., devices=devices, num_nodes=int(os.environ.get("WORLD_SIZE", devices)) // devices)',
        )


RULES = (
    Rule(
        "process-group-missing",
        "error",
        "The ranks are not connected",
        check_group_missing,
        handled_by=ALL,
    ),
    Rule("process-group-fixed", "error", "An address or rank is hard-coded", check_group_fixed),
    Rule(
        "spawns-ranks",
        "error",
        "The script starts ranks itself",
        check_spawn,
        handled_by=frozenset({LIGHTNING}),
        skipped_launchers=frozenset({"env"}),
    ),
    Rule("model-not-wrapped", "error", "Gradients are not exchanged", check_model_not_wrapped, handled_by=ALL),
    Rule("data-parallel", "error", "DataParallel works within one process", check_data_parallel, handled_by=ALL),
    Rule("lightning-nodes", "error", "Lightning is not told the number of nodes", check_lightning_nodes),
    Rule(
        "process-group-open",
        "warning",
        "The process group is not destroyed",
        check_group_open,
        handled_by=ALL - {DEEPSPEED},
    ),
    Rule("backend-fixed", "warning", "The backend needs GPUs", check_backend),
)
