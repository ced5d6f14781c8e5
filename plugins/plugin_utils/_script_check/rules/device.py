# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for the GPU that a rank uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.muster.training.plugins.plugin_utils._script_check.frameworks import ALL
from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import (
    Module,
    argument,
    is_constant,
    keyword_value,
    string_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import (
    CallSite,
    Program,
    Site,
    is_global_rank,
    is_local_rank,
    name_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import Rule

LOCAL_DEVICE = 'torch.device("cuda", int(os.environ["LOCAL_RANK"]))'
SET_DEVICE = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
SETTERS = ("set_device", "set_device_index", "set_device_idx")
FIXED_GPU = re.compile(r"cuda:\d+\Z")
# The number of a GPU is the global rank modulo the number of GPUs per node
REDUCED = re.compile(r"device_count|gpus|local_world_size|nproc|devices_per_node")


def device_indexes(program: Program) -> Iterator[Site]:
    """Yield the expressions that select a GPU by number."""
    for call in program.calls:
        node = call.node
        if call.last in SETTERS and node.args:
            yield Site(call.module, node.args[0])
        elif call.last == "cuda" and isinstance(node.func, ast.Attribute):
            index = argument(node, 0, "device")
            if index is not None:
                yield Site(call.module, index)
        elif call.name == "torch.device" and len(node.args) == 2:
            yield Site(call.module, node.args[1])
        devices = keyword_value(node, "device_ids")
        if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) == 1:
            yield Site(call.module, devices.elts[0])
    for module in program.modules:
        for joined in module.nodes:
            if isinstance(joined, ast.JoinedStr) and is_device_string(joined):
                yield Site(module, joined)
            elif isinstance(joined, ast.BinOp) and string_of(joined.left) == "cuda:":
                yield Site(module, joined.right)


def is_device_string(node: ast.JoinedStr) -> bool:
    """Return whether an f-string is a device with a number, such as f"cuda:{rank}" or f"{device}:{rank}"."""
    parts = [string_of(part) for part in node.values]
    return parts[:1] == ["cuda:"] or (len(parts) == 3 and parts == ["", ":", ""])


def is_expected_string(module: Module, node: ast.AST) -> bool:
    """Return whether a string does not select a device: documentation, a key, or a comparison."""
    parent = module.parents.get(node)
    if isinstance(parent, (ast.Expr, ast.Compare, ast.JoinedStr)):
        return True
    if isinstance(parent, ast.Dict):
        return node in parent.keys
    return isinstance(parent, ast.keyword) and parent.arg in ("help", "choices")


def check_fixed(program: Program) -> Iterator[RuleMatch]:
    """Report GPUs that are selected by a constant number."""
    for module in program.modules:
        for node in module.nodes:
            if not isinstance(node, ast.Constant) or not FIXED_GPU.match(string_of(node)):
                continue
            if is_expected_string(module, node) or not _counts(program, Site(module, node)):
                continue
            yield program.match(module, node, f'all ranks of a node use the GPU "{node.value!s}"', LOCAL_DEVICE)
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            for target in node.targets:
                if isinstance(target, ast.Subscript) and string_of(target.slice) == "CUDA_VISIBLE_DEVICES":
                    problem = "CUDA_VISIBLE_DEVICES is hard-coded, so ranks cannot use the other GPUs of the node"
                    yield program.match(module, node, problem, f"remove this line; {SET_DEVICE}")
    for module, index in device_indexes(program):
        if isinstance(index, ast.Constant) and isinstance(index.value, int) and _counts(program, Site(module, index)):
            yield program.match(module, index, f"all ranks of a node use GPU {index.value}", SET_DEVICE)


def _counts(program: Program, site: Site) -> bool:
    return program.is_used(site) and not program.is_in_distributed_branch(*site)


def gpu_uses(program: Program) -> Iterator[Site]:
    """Yield uses of the current GPU: .cuda(), "cuda"."""
    for call in program.calls:
        moves = call.last == "cuda" and isinstance(call.node.func, ast.Attribute) and not call.node.args
        if moves or call.last == "current_accelerator":
            yield Site(call.module, call.node)
    for module in program.modules:
        for node in module.nodes:
            parent = module.parents.get(node)
            if is_constant(node, "cuda") and not is_expected_string(module, node):
                # an argument of autocast, GradScaler or an event does not choose a GPU
                called = module.qualified_name(parent.func) if isinstance(parent, ast.Call) else ""
                if called.rpartition(".")[2] in ("autocast", "GradScaler", "Event"):
                    continue
                if isinstance(parent, ast.keyword) and parent.arg == "device_type":
                    continue
                yield Site(module, node)


def check_not_set(program: Program) -> Iterator[RuleMatch]:
    """Report a script in which no rank selects its own GPU, so that all ranks on a node use GPU 0."""
    if program.setup_by_library or not program.trains or any(True for _match in check_fixed(program)):
        return
    if any(not isinstance(site.node, ast.Constant) for site in device_indexes(program)):
        return
    if any("set_device" in name or name == "init_device_mesh" for name in program.identifiers):
        return
    for site in gpu_uses(program):
        if not program.is_used(site):
            continue
        yield program.match(
            site.module,
            site.node,
            "no rank selects its own GPU: all ranks of a node use GPU 0",
            f'{SET_DEVICE}, before anything else uses "cuda"',
        )
        return


def check_global_rank(program: Program) -> Iterator[RuleMatch]:
    """Report GPUs that are selected by the global rank, which is too large on the second node."""
    reported: set[int] = set()
    for module, index in device_indexes(program):
        if isinstance(index, ast.Constant) or not program.is_used(Site(module, index)):
            continue
        sites = list(program.reachable(module, index))
        if not any(is_global_rank(site) for site in sites):
            continue
        if any(REDUCED.search(name_of(site.node)) for site in sites):
            continue
        # a variable may be called local_rank and yet be the global one
        if any(is_local_rank(site) and not program.values(*site) for site in sites):
            continue
        if any(isinstance(site.node, ast.BinOp) and isinstance(site.node.op, ast.Mod) for site in sites):
            continue
        line = getattr(index, "lineno", 0)
        if line not in reported:
            reported.add(line)
            yield program.match(
                module,
                index,
                (
                    f"the GPU is chosen by the global rank, {ast.unparse(index)}, but no GPU on the second node has "
                    "that number"
                ),
                SET_DEVICE,
            )


def reads_local_rank(program: Program) -> bool:
    """Return whether the program takes the local rank from the environment or a library."""
    if program.setup_by_library or program.uses("get_node_local_rank", "get_local_rank", "device_count"):
        return True
    return any(re.search(r"LOCAL_?RANK|LOCALID", text) for text in program.strings)


def local_rank_options(program: Program) -> list[CallSite]:
    """Return the calls that add the option --local_rank or --local-rank."""
    return [call for call in program.options.get("local_rank", []) if program.is_used(call)]


def check_local_rank_argument(program: Program) -> Iterator[RuleMatch]:
    """Report scripts that take the local rank from an option that torchrun does not pass."""
    if reads_local_rank(program):
        return
    for call in local_rank_options(program)[:1]:
        yield program.match(
            call.module,
            call.node,
            f"{program.launcher} does not pass --local_rank: each rank would use the option's default",
            'parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))',
        )


NOT_BY_ARGUMENT = frozenset({"deepspeed"})
RULES = (
    Rule("device-fixed", "error", "The GPU is hard-coded", check_fixed),
    Rule("device-not-set", "error", "No rank chooses its GPU", check_not_set, handled_by=ALL),
    Rule("device-global-rank", "error", "The GPU is chosen by the global rank", check_global_rank),
    Rule(
        "local-rank-argument",
        "error",
        "The local rank comes from an option",
        check_local_rank_argument,
        handled_by=ALL,
        skipped_launchers=NOT_BY_ARGUMENT,
    ),
)
