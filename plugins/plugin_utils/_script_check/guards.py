# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on which ranks a statement runs, from conditions such as `if rank == 0` and how they enclose it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import (
    FunctionNode,
    Module,
    is_constant,
    last_part,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import (
    DISTRIBUTED,
    Program,
    Site,
    is_any_rank,
    is_rank,
    name_of,
)

MAIN_ONLY, OTHERS_ONLY, ALL_RANKS = 1, -1, 0
SOME_RANKS = "some ranks"
MAX_DEPTH = 4
# Names of conditions and decorators that are true only on the first rank
MAIN = re.compile(
    r"(?i)(^|_)is_?(main|master|primary|chief|leader|root|rank_?(0|zero)|global_zero|world_process_zero|first|"
    r"local_main|local_process_zero|coordinator)|(main|master|primary|lead)_?(proc|process|rank|node|only)|"
    r"rank_?(0|zero)|global_zero|on_(main|master|primary)"
)
# Names of functions that do nothing on the other ranks
MAIN_FUNCTION = re.compile(r"(?i)(on|if)_(main|master|primary|rank_?(0|zero))|(rank_?(0|zero)|master|main)_only")
JUMPS = (ast.Return, ast.Continue, ast.Raise)


def negate_polarity(polarity: int) -> int:
    """Return the polarity of the negated condition."""
    return -polarity


def is_rank_expression(program: Program, module: Module, node: ast.AST) -> bool:
    """Return whether an expression depends on a rank: rank + 1, args.rank, int(os.environ["RANK"]), ..."""
    for child in ast.walk(node):
        if is_any_rank(Site(module, child)):
            return True
    if isinstance(node, (ast.Name, ast.Attribute)):
        return any(
            isinstance(site.node, (ast.Call, ast.Subscript, ast.IfExp))
            and any(is_any_rank(Site(site.module, child)) for child in ast.walk(site.node))
            for site in program.values(module, node)
        )
    return False


def compare_polarity(program: Program, module: Module, test: ast.Compare) -> int:
    """Return the polarity of a comparison with a rank."""
    if len(test.ops) != 1:
        return ALL_RANKS
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if not is_rank_expression(program, module, left):
        left, right = right, left
        if not is_rank_expression(program, module, left):
            return ALL_RANKS
    if isinstance(operator, (ast.In, ast.NotIn)):
        values = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
        polarity = MAIN_ONLY if any(is_constant(value, 0) for value in values) else ALL_RANKS
        return polarity if isinstance(operator, ast.In) else negate_polarity(polarity)
    if isinstance(operator, (ast.Is, ast.IsNot)):
        return ALL_RANKS
    if isinstance(operator, (ast.NotEq, ast.Gt, ast.GtE)):
        return OTHERS_ONLY
    return MAIN_ONLY


def polarity_of(program: Program, module: Module, test: ast.expr, depth: int = 0, negated: bool = False) -> int:
    """Return whether a condition is true only on the first rank, only on the others, or regardless of the rank.

    negated: return it for the opposite of the condition.
    """
    if depth > MAX_DEPTH:
        return ALL_RANKS
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if is_rank(Site(module, test.operand)):  # a condition such as `not rank`
            return OTHERS_ONLY if negated else MAIN_ONLY
        return polarity_of(program, module, test.operand, depth, not negated)
    if isinstance(test, ast.BoolOp):
        polarities = [polarity_of(program, module, value, depth, negated) for value in test.values]
        if isinstance(test.op, ast.And) != negated:
            return next((polarity for polarity in polarities if polarity), ALL_RANKS)
        # any of the operands is enough; one that means "not distributed" leaves a single rank
        polarities = [
            polarity
            for polarity, value in zip(polarities, test.values, strict=True)
            if polarity or not means_single_process(value, negated)
        ]
        return polarities[0] if len(set(polarities)) == 1 else ALL_RANKS
    polarity = ALL_RANKS
    if isinstance(test, ast.Compare):
        polarity = compare_polarity(program, module, test)
    elif isinstance(test, ast.Call):
        if test.args and last_part(module.qualified_name(test.func)) == "bool":
            return polarity_of(program, module, test.args[0], depth, negated)
        polarity = named_polarity(program, module, test.func, depth)
    elif isinstance(test, (ast.Name, ast.Attribute)):
        polarity = named_polarity(program, module, test, depth)
    return negate_polarity(polarity) if negated else polarity


def means_single_process(test: ast.expr, negated: bool) -> bool:
    """Return whether a condition, or its negation, is true only in a single-process run, such as world_size == 1."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return means_single_process(test.operand, not negated)
    if isinstance(test, ast.BoolOp):
        return any(means_single_process(value, negated) for value in test.values)
    if not any(DISTRIBUTED.search(name_of(child)) for child in ast.walk(test)):
        return False
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], (ast.Eq, ast.Lt, ast.LtE)) != negated
    return negated


def named_polarity(program: Program, module: Module, node: ast.expr, depth: int) -> int:
    """Return the polarity of a variable, attribute or function in the program."""
    name = name_of(node)
    if MAIN.search(name):
        return MAIN_ONLY
    values = [site for site in program.values(module, node) if isinstance(site.node, ast.expr)]
    for owner, function in program.functions.get(name, []):
        for child in ast.walk(function):
            if isinstance(child, ast.Return) and child.value is not None:
                values.append(Site(owner, child.value))
    polarities = {
        polarity_of(program, site.module, site.node, depth + 1)
        for site in values
        if isinstance(site.node, ast.expr) and not is_constant(site.node, True)
    }
    return polarities.pop() if len(polarities) == 1 else ALL_RANKS


def local_polarities(program: Program, module: Module, node: ast.AST) -> Iterator[int]:
    """Yield the polarities of the conditions that enclose a node within its function."""
    for child, parent in module.ancestors(node):
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and child is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            yield polarity_of(program, module, parent.test, negated=child not in body)
        elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
            for value in parent.values[: parent.values.index(child)] if child in parent.values else []:
                yield polarity_of(program, module, value)
        for field in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, field, None)
            if not isinstance(block, list) or child not in block:
                continue
            for earlier in block[: block.index(child)]:
                if isinstance(earlier, ast.If) and ends_block(module, earlier.body[-1]):
                    yield polarity_of(program, module, earlier.test, negated=True)
        if isinstance(parent, FunctionNode):
            decorators = [decorator.func if isinstance(decorator, ast.Call) else decorator
                          for decorator in parent.decorator_list]  # fmt: skip
            if any(MAIN.search(name_of(decorator)) for decorator in decorators):
                yield MAIN_ONLY
            return


def describe_ranks(program: Program, module: Module, node: ast.AST) -> str:
    """Return which ranks run a node whose conditions are MAIN_ONLY: "the first rank", "rank 1", "one rank", ..."""
    for test in rank_conditions(module, node):
        for part in ast.walk(test):
            if isinstance(part, ast.Compare) and compare_polarity(program, module, part) != ALL_RANKS:
                return compared_ranks(part)
    return "the first rank"


def compared_ranks(test: ast.Compare) -> str:
    """Return the ranks that a comparison with a rank, or its opposite, selects."""
    operator = test.ops[0]
    values = (side.value for side in (test.left, test.comparators[0]) if isinstance(side, ast.Constant))
    number = next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)
    if isinstance(operator, (ast.Eq, ast.NotEq)):
        return "the first rank" if number == 0 else "one rank" if number is None else f"rank {number}"
    first = 1 if isinstance(operator, (ast.Lt, ast.GtE)) else 0 if isinstance(operator, (ast.Gt, ast.LtE)) else None
    return "the first rank" if number is not None and number == first else SOME_RANKS


def rank_conditions(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions that enclose a node in its function, and those under which the function ends before it."""
    for child, parent in module.ancestors(node):
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and child is not parent.test:
            yield parent.test
        for field in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, field, None)
            for earlier in block[: block.index(child)] if isinstance(block, list) and child in block else []:
                if isinstance(earlier, ast.If) and ends_block(module, earlier.body[-1]):
                    yield earlier.test
        if isinstance(parent, FunctionNode):
            return


def runs_in_single_process(module: Module, node: ast.AST) -> bool:
    """Return whether a condition that encloses a node is true only in a single-process run."""
    for child, parent in module.ancestors(node):
        if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            if means_single_process(parent.test, negated=child not in body):
                return True
    return False


def ends_block(module: Module, statement: ast.stmt) -> bool:
    """Return whether a statement ends the function, the iteration or the process."""
    if isinstance(statement, JUMPS):
        return True
    called = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(called, ast.Call) and last_part(module.qualified_name(called.func)) in ("exit", "_exit", "quit")


def local_polarity(program: Program, module: Module, node: ast.AST) -> int:
    """Return on which ranks a node runs, according to the conditions in its own function."""
    return next((polarity for polarity in local_polarities(program, module, node) if polarity), ALL_RANKS)


def runs_on_first_rank_only(program: Program, module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Return whether only the first rank runs a node, also if only the calls of its function are guarded."""
    if MAIN_ONLY in local_polarities(program, module, node):
        return True
    function = module.function_of(node)
    if function is None or depth > MAX_DEPTH:
        return False
    if MAIN_FUNCTION.search(function.name):
        return True  # a function such as save_on_master
    callers = program.callers(module, function)
    parent = module.class_of(function)
    if parent is not None and (creations := program.creations(parent)):
        if all(runs_on_first_rank_only(program, call.module, call.node, depth + 1) for call in creations):
            return True
        callers = creations if function.name == "__init__" else callers
    callers = [call for call in callers if call.module.function_of(call.node) is not function]
    return bool(callers) and all(
        runs_on_first_rank_only(program, call.module, call.node, depth + 1) for call in callers
    )
