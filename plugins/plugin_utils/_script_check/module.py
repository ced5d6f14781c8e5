# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A parsed Python file: its imports, calls and assignments, and the parents of its nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# The parser uses the same object for each occurrence
SHARED = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Module:
    """A file in the program. name: its import path in the project, such as "data.loader"."""

    def __init__(self, name: str, path: str, text: str) -> None:
        """Parse a file. Raise SyntaxError."""
        self.name = name
        self.path = path
        self.tree = ast.parse(text)
        self.nodes: list[ast.AST] = [self.tree]
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in self.nodes:  # this list grows during the loop: breadth first, like ast.walk
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, SHARED):
                    self.parents[child] = node
                    self.nodes.append(child)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.functions = [node for node in self.nodes if isinstance(node, FunctionNode)]
        self.imports: list[str] = []  # qualified names of everything that is imported
        self.aliases: dict[str, str] = {}  # local names of imports
        self.assignments: dict[tuple[ast.AST | None, str], list[ast.expr]] = {}  # assigned values by scope and name
        self.attributes: dict[str, list[ast.expr]] = {}  # values assigned to attributes, such as self.rank, by name
        for node in self.nodes:
            self._read_import(node)
        for node in self.nodes:
            self._read_assignment(node)

    def _read_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imports.append(alias.name)
                local_name = alias.asname or alias.name.partition(".")[0]
                self.aliases[local_name] = alias.name if alias.asname else local_name
        elif isinstance(node, ast.ImportFrom):
            base = self.absolute_name(node)
            for alias in node.names:
                qualified = f"{base}.{alias.name}" if base else alias.name
                self.imports.append(qualified)
                self.aliases[alias.asname or alias.name] = qualified

    def absolute_name(self, node: ast.ImportFrom) -> str:
        """Return the module that an import statement names, without leading dots."""
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")[: -node.level]
        return ".".join([*parents, *([node.module] if node.module else [])])

    def _read_assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            pairs = [(node.optional_vars, node.context_expr)]
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            pairs = [(node.target, node.iter)]
        else:
            return
        for target, value in pairs:
            self._bind(target, value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            same_length = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            values = value.elts if same_length and isinstance(value, (ast.Tuple, ast.List)) else [value] * 99
            for element, element_value in zip(target.elts, values, strict=False):
                self._bind(element, element_value)
        elif isinstance(target, ast.Name):
            self.assignments.setdefault((self.scope_of(target), target.id), []).append(value)
        elif isinstance(target, ast.Attribute):
            self.attributes.setdefault(target.attr, []).append(value)

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield (child, parent) from a node up to the module."""
        while node in self.parents:
            parent = self.parents[node]
            yield node, parent
            node = parent

    def scope_of(self, node: ast.AST) -> ast.AST | None:
        """Return the innermost function enclosing a node; None at module level."""
        return next((parent for _child, parent in self.ancestors(node) if isinstance(parent, SCOPES)), None)

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        """Return the innermost named function enclosing a node; None at module level."""
        return next((parent for _child, parent in self.ancestors(node) if isinstance(parent, FunctionNode)), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class of a method, or None for other functions."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def is_method(self, function: ast.AST) -> bool:
        """Return whether a function is defined directly in a class."""
        return self.class_of(function) is not None

    def qualified_name(self, node: ast.AST) -> str:
        """Return the dotted name of an expression, such as "torch.distributed.get_rank" for dist.get_rank.

        The result of a call is "()", any other expression "?".
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            root = self.aliases.get(node.id, node.id)
        else:
            root = "()" if isinstance(node, ast.Call) else "?"
        return ".".join([root, *reversed(parts)])


def last_part(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument, or None."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def has_unpacked_keywords(call: ast.Call) -> bool:
    """Return whether a call unpacks **arguments."""
    return any(keyword.arg is None for keyword in call.keywords)


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return an argument by keyword or position, or None."""
    value = keyword_value(call, name)
    if value is not None:
        return value
    return call.args[position] if len(call.args) > position else None


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return whether an expression is exactly the given constant."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def string_of(node: ast.AST | None) -> str:
    """Return the value of a string constant, otherwise an empty string."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
