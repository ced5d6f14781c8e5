# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for files: saving and loading checkpoints, the collectives around this, and paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.muster.training.plugins.plugin_utils._script_check.frameworks import (
    DEEPSPEED,
    TRANSFORMERS,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.guards import (
    MAIN_ONLY,
    OTHERS_ONLY,
    SOME_RANKS,
    describe_ranks,
    local_polarities,
    local_polarity,
    runs_in_single_process,
    runs_on_first_rank_only,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import (
    Module,
    keyword_value,
    last_part,
    string_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import (
    CallSite,
    Program,
    Site,
    is_any_rank,
    name_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import Rule

SAVERS = re.compile(
    r"torch\.save$|safetensors(\.torch)?\.save_(file|model)$|numpy\.(save|savez|savez_compressed)$|joblib\.dump$"
)
COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "barrier", "broadcast"),
    *("broadcast_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor", "gather", "gather_object"),
    *("scatter", "scatter_object_list", "all_to_all", "all_to_all_single", "monitored_barrier"),
)
SHARING = (
    *("broadcast", "broadcast_object_list", "sync_module_states", "broadcast_from_rank0", "_broadcast_coalesced"),
    "broadcast_tensors",
)
CHECKPOINT = re.compile(r"(?i)ckpt|checkpoint|resume|state|weights|pretrained|model|snapshot|restore")
STATE = re.compile(r"(?i)optim|sched|scaler|^opt$")
LOCAL_PATH = re.compile(r"/home/\w|/Users/\w|/root/\w|[A-Za-z]:[\\/]\w|/content/\w|/kaggle/\w")


def check_saving(program: Program) -> Iterator[RuleMatch]:
    """Report files that all ranks write at the same time."""
    for call in program.calls:
        pretrained = call.last == "save_pretrained" and "torch" not in call.name.split(".")[:1]
        if not (SAVERS.match(call.name) or pretrained) or not program.is_used(call):
            continue
        if pretrained and TRANSFORMERS in program.frameworks:
            continue
        module, node = call.module, call.node
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        if keyword_value(node, "is_main_process") is not None or keyword_value(node, "save_function") is not None:
            continue
        if any(program.mentions(module, value, is_any_rank) for value in _paths(call)):
            continue  # each rank writes its own file
        if any(program.mentions(module, value, lambda site: "BytesIO" in name_of(site.node)) for value in values):
            continue
        if runs_on_first_rank_only(program, module, node) or runs_in_single_process(module, node):
            continue
        if is_called_back(program, module, node):
            continue
        yield program.match(
            module,
            node,
            "all ranks write this file at the same time, which may corrupt it",
            f"if torch.distributed.get_rank() == 0: {ast.unparse(node)}"[:150],
        )


def is_called_back(program: Program, module: Module, node: ast.AST) -> bool:
    """Return whether the function that contains a node is called by a library, in which case the condition under which
    the node runs is unknown.
    """
    function = module.function_of(node)
    if function is None or program.callers(module, function):
        return False
    if module.is_method(function):
        return not function.name.startswith("on_")
    return module.function_of(function) is not None


def _paths(call: CallSite) -> list[ast.expr]:
    """Return the arguments that may be a path, excluding the object to save."""
    first_is_path = call.last == "save_pretrained" or call.name.startswith("numpy.")
    return call.node.args[:1] if first_is_path else call.node.args[1:2]


def is_collective(program: Program, call: CallSite) -> bool:
    """Return whether all ranks must make a call together."""
    base = call.name.rpartition(".")[0]
    if call.last in COLLECTIVES and call.name.startswith("torch.distributed."):
        return True
    if DEEPSPEED in program.frameworks and call.last == "save_checkpoint":
        return bool(base) and base.split(".")[0] not in call.module.aliases.values() and not program.is_defined(call)
    if call.last in ("wait_for_everyone", "gather_for_metrics", "clip_grad_norm_") and "accelerator" in base:
        return True
    sharded = program.uses("FullyShardedDataParallel", "fully_shard") and not program.uses("DistributedDataParallel")
    return sharded and call.last == "state_dict" and "model" in base and ".module" not in base


def check_collective(program: Program) -> Iterator[RuleMatch]:
    """Report calls that all ranks must make but only the first rank, or another one, makes."""
    for call in program.calls:
        if not is_collective(program, call) or not program.is_used(call):
            continue
        if local_polarity(program, call.module, call.node) != MAIN_ONLY or _has_counterpart(program, call):
            continue
        ranks = describe_ranks(program, call.module, call.node)
        ending = "" if ranks == SOME_RANKS else "s"
        yield program.match(
            call.module,
            call.node,
            f"only {ranks} call{ending} {call.last}, and wait{ending} for the other ranks forever",
            f"call {ast.unparse(call.node)[:60]} on all ranks: move it out of the condition",
        )


def _has_counterpart(program: Program, call: CallSite) -> bool:
    """Return whether the other ranks make the same call elsewhere in the function."""
    scope = call.module.scope_of(call.node)
    return any(
        other_call.last == call.last
        and other_call.module is call.module
        and call.module.scope_of(other_call.node) is scope
        and OTHERS_ONLY in local_polarities(program, call.module, other_call.node)
        for other_call in program.calls
    )


def check_loading(program: Program) -> Iterator[RuleMatch]:
    """Report state that only the first rank loads."""
    if not program.is_distributed or program.uses(*SHARING):
        return
    for call in program.calls_of("load_state_dict"):
        base = last_part(call.name.rpartition(".")[0])
        if local_polarity(program, call.module, call.node) != MAIN_ONLY:
            continue
        if not STATE.search(base) and not _is_after_wrapper(program, call):
            continue
        ranks = describe_ranks(program, call.module, call.node)
        verb = "load" if ranks == SOME_RANKS else "loads"
        yield program.match(
            call.module,
            call.node,
            f"only {ranks} {verb} {base}; the other ranks continue with a different state",
            f"{ast.unparse(call.node)[:80]} on all ranks: move it out of the condition",
        )


def _is_after_wrapper(program: Program, call: CallSite) -> bool:
    """Return whether a model is loaded after DistributedDataParallel has copied rank 0's weights."""
    scope = call.module.scope_of(call.node)
    return any(
        wrapper.module is call.module
        and call.module.scope_of(wrapper.node) is scope
        and wrapper.node.lineno < call.node.lineno
        for wrapper in program.calls_of("DistributedDataParallel")
    )


def check_map_location(program: Program) -> Iterator[RuleMatch]:
    """Report checkpoints that all ranks load onto the GPU from which they were saved."""
    if not program.uses_cuda:
        return
    for call in program.calls_of("load"):
        node = call.node
        if call.name != "torch.load" or keyword_value(node, "map_location") is not None or len(node.args) > 1:
            continue
        if any(keyword.arg is None for keyword in node.keywords) or not _is_checkpoint(call):
            continue
        path = ast.unparse(node.args[0]) if node.args else "path"
        yield program.match(
            call.module,
            node,
            "the checkpoint is loaded onto the GPU it was saved from: all ranks of a node fill GPU 0",
            f'torch.load({path}, map_location="cpu")',
        )


def _is_checkpoint(call: CallSite) -> bool:
    statement: ast.AST = call.node
    for _child, parent in call.module.ancestors(call.node):
        statement = parent
        if isinstance(parent, ast.stmt):
            break
    return bool(CHECKPOINT.search(ast.unparse(statement).replace("torch.load", ""))) if not isinstance(
        statement, (ast.If, ast.For, ast.While, ast.With)) else True  # fmt: skip


def check_paths(program: Program) -> Iterator[RuleMatch]:
    """Report absolute paths in home directories, which do not exist on other machines."""
    for module in program.modules:
        for node in module.nodes:
            text = string_of(node)
            parent = module.parents.get(node)
            if isinstance(parent, ast.JoinedStr) and parent.values[0] is not node:
                continue
            if not LOCAL_PATH.match(text) or "\n" in text or isinstance(parent, (ast.Expr, ast.Compare)):
                continue
            if isinstance(parent, ast.keyword) and parent.arg in ("help", "description", "epilog"):
                continue
            if not program.is_used(Site(module, node)):
                continue
            yield program.match(
                module,
                node,
                f"{text} is a path that exists on one machine only",
                'an argument, such as parser.add_argument("--data", required=True), with a path that all nodes have',
            )


RULES = (
    Rule("save-every-rank", "error", "All ranks write the same file", check_saving),
    Rule("collective-one-rank", "error", "Only one rank makes a call that all ranks must make", check_collective),
    Rule("load-one-rank", "error", "Only one rank loads its state", check_loading),
    Rule("load-map-location", "warning", "A checkpoint is loaded onto GPU 0", check_map_location),
    Rule("path-local", "warning", "A path exists on one machine only", check_paths),
)
