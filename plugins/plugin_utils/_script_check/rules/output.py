# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for metrics and output."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.muster.training.plugins.plugin_utils._script_check.frameworks import (
    ACCELERATE,
    LIGHTNING,
    OTHER,
    TRANSFORMERS,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.guards import (
    local_polarities,
    runs_on_first_rank_only,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import FunctionNode, Module
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import (
    CallSite,
    Program,
    Site,
    is_any_rank,
    name_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import Rule

REDUCTION = re.compile(
    r"(?i)reduce|all_gather|gather_object|gather_for_metrics|synchronize_between|torchmetrics|sync_dist"
)
TRACKERS = re.compile(
    r"wandb\.init$|(torch\.utils\.tensorboard|tensorboardX|tensorboard)(\.\w+)*\.SummaryWriter$|mlflow\.start_run$|"
    r"neptune\.init_run$|neptune\.init$|clearml\.Task\.init$|comet_ml\.(start|Experiment)$|aim\.Run$|swanlab\.init$"
)
EVALUATION = ("no_grad", "inference_mode", "eval")


def mentions_rank(program: Program, call: CallSite) -> bool:
    """Return whether an argument of a call depends on the rank."""
    values = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
    return any(program.mentions(call.module, value, is_any_rank) for value in values)


def is_loop_of_steps(module: Module, call: CallSite) -> bool:
    """Return whether a call is repeated by a loop in its function."""
    for _child, parent in module.ancestors(call.node):
        if isinstance(parent, (ast.For, ast.While)):
            return True
        if isinstance(parent, FunctionNode):
            return False
    return False


def replaces_print(program: Program) -> bool:
    """Return whether the program replaces print, for example on all ranks except the first."""
    if "print" in program.functions:
        return True
    return any((None, "print") in module.assignments or "print" in module.attributes for module in program.modules)


def check_print(program: Program) -> Iterator[RuleMatch]:
    """Report output that each rank repeats."""
    if not program.trains or replaces_print(program):
        return
    calls = [
        call
        for call in program.calls_of("print")
        if call.name == "print"
        and is_loop_of_steps(call.module, call)
        and not any(is_any_rank(Site(call.module, child)) for arg in call.node.args for child in ast.walk(arg))
        and not runs_on_first_rank_only(program, call.module, call.node)
    ]
    if not calls:
        return
    more = f" (and {len(calls) - 1} more)" if len(calls) > 1 else ""
    yield program.match(
        calls[0].module,
        calls[0].node,
        f"each rank prints this line{more}",
        f"if torch.distributed.get_rank() == 0: {ast.unparse(calls[0].node)}"[:150],
    )


def check_tracker(program: Program) -> Iterator[RuleMatch]:
    """Report experiment trackers that each rank starts."""
    for call in program.calls:
        if not TRACKERS.match(call.name) or not program.is_used(call):
            continue
        if any(local_polarities(program, call.module, call.node)) or mentions_rank(program, call):
            continue
        if runs_on_first_rank_only(program, call.module, call.node):
            continue
        if any(keyword.arg == "group" for keyword in call.node.keywords):
            continue  # one tracker run per rank is intentional
        yield program.match(
            call.module,
            call.node,
            f"each rank starts its own run ({call.name})",
            f"if torch.distributed.get_rank() == 0: {ast.unparse(call.node)}"[:150],
        )


def check_metrics(program: Program) -> Iterator[RuleMatch]:
    """Report evaluation results that cover only one rank's data."""
    names = {*program.identifiers, *(imported for module in program.modules for imported in module.imports)}
    if any(REDUCTION.search(name) for name in names):
        return
    for module in program.modules:
        for loop in module.nodes:
            if not isinstance(loop, ast.For) or not is_evaluation(module, loop):
                continue
            total = next(_totals(loop), None)
            if total is None or not program.is_used(Site(module, loop)):
                continue
            if not iterates_over_part(program, module, loop.iter):
                continue
            name = ast.unparse(total.target)
            yield program.match(
                module,
                total,
                f"{name} covers only one rank's data: it is never summed over the ranks",
                f"total = torch.tensor({name}, device=device); torch.distributed.all_reduce(total), before it is used",
            )
            break


def _totals(loop: ast.For) -> Iterator[ast.AugAssign]:
    for child in ast.walk(loop):
        if isinstance(child, ast.AugAssign) and isinstance(child.op, ast.Add) and not isinstance(
            child.value, ast.Constant
        ):  # fmt: skip
            yield child


def is_evaluation(module: Module, loop: ast.AST) -> bool:
    """Return whether a loop runs without gradients."""
    for _child, parent in module.ancestors(loop):
        if isinstance(parent, ast.With) and any(
            name_of(child) in EVALUATION for item in parent.items for child in ast.walk(item)
        ):
            return True
        if isinstance(parent, FunctionNode):
            decorators = {name_of(child) for decorator in parent.decorator_list for child in ast.walk(decorator)}
            statements = {name_of(child) for statement in parent.body for child in ast.walk(statement)}
            return bool(decorators & set(EVALUATION)) or ("eval" in statements and "backward" not in statements)
    return False


def iterates_over_part(program: Program, module: Module, iterable: ast.expr) -> bool:
    """Return whether a loop's loader has a sampler that gives each rank a part of the data."""
    sites = list(program.reachable(module, iterable))
    for site in sites:
        if not isinstance(site.node, ast.Call) or site.module.qualified_name(site.node.func).rpartition(".")[2] != (
            "DataLoader"
        ):
            continue
        if any(
            "DistributedSampler" in name_of(child.node)
            for keyword in site.node.keywords
            if keyword.arg in ("sampler", "batch_sampler")
            for child in program.reachable(site.module, keyword.value)
        ):
            return True
    return False


RULES = (
    Rule(
        "metrics-one-rank",
        "warning",
        "A metric covers one rank's data only",
        check_metrics,
        handled_by=frozenset({LIGHTNING, TRANSFORMERS, OTHER}),
    ),
    Rule(
        "tracker-every-rank",
        "warning",
        "Each rank starts a tracker",
        check_tracker,
        handled_by=frozenset({LIGHTNING, TRANSFORMERS, OTHER}),
    ),
    Rule(
        "print-every-rank",
        "warning",
        "Each rank prints the same output",
        check_print,
        handled_by=frozenset({LIGHTNING, TRANSFORMERS, ACCELERATE, OTHER}),
    ),
)
