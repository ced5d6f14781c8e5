# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program: the files of a script, with lookups across them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._script_check.frameworks import find_frameworks
from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import (
    FunctionNode,
    Module,
    last_part,
)

MAX_DEPTH = 4  # number of names that are resolved in sequence
MAX_NODES = 2000  # number of nodes per expression that is resolved
# A library function that initializes the process group, such as init_distributed_mode
SETUP = re.compile(r"(?i)(init|setup|launch|start|configure)\w*(dist|ddp|parallel)|dist\w*(init|setup)|^ddp_setup")
# A condition that distinguishes a distributed run from a single process
DISTRIBUTED = re.compile(r"(?i)distributed|(^|_)(ddp|fsdp|dp|dist)($|_)|world_size|is_initialized|n_?gpus?$|multi_?gpu")
HOOKS = re.compile(r"__\w+__|on_\w+|main|forward|(training|validation|test)_step|\w+_dataloader|setup|prepare_data")


class Site(NamedTuple):
    """A node in a file."""

    module: Module
    node: ast.AST


class CallSite(NamedTuple):
    """A call and the qualified name of the called function."""

    module: Module
    node: ast.Call
    name: str

    @property
    def last(self) -> str:
        """The last part of the dotted name."""
        return last_part(self.name)


class Program:
    """The files of a script, the script first, and the launcher that will start it."""

    def __init__(self, modules: Sequence[Module], launcher: str = "torchrun") -> None:
        self.modules = modules
        self.launcher = launcher
        self.calls = [
            CallSite(module, node, module.qualified_name(node.func)) for module in modules for node in module.calls
        ]
        self._calls_by_name: dict[str, list[CallSite]] = {}
        for call in self.calls:
            self._calls_by_name.setdefault(call.last, []).append(call)
        self.functions: dict[str, list[Site]] = {}
        for module in modules:
            for function in module.functions:
                self.functions.setdefault(function.name, []).append(Site(module, function))
        self.module_names = {module.name.removesuffix(".__init__") for module in modules}
        self.identifiers = {
            node.id if isinstance(node, ast.Name) else node.attr
            for module in modules
            for node in module.nodes
            if isinstance(node, (ast.Name, ast.Attribute))
        } | {node.arg for module in modules for node in module.nodes if isinstance(node, ast.arg)}
        self.strings = {
            node.value
            for module in modules
            for node in module.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """Names of the frameworks that the program uses."""
        imports = {name for module in self.modules for name in module.imports}
        return find_frameworks(imports, {call.name for call in self.calls})

    @cached_property
    def imports_torch(self) -> bool:
        """Whether any file imports torch or a framework."""
        roots = {name.partition(".")[0] for module in self.modules for name in module.imports}
        return "torch" in roots or bool(self.frameworks)

    @cached_property
    def first_backward(self) -> CallSite | None:
        """The first backward pass that the program may run; None if it does not train."""
        return next((call for call in self.calls if call.last == "backward" and self.is_used(call)), None)

    @cached_property
    def trains(self) -> bool:
        """Whether the program trains a model in its own loop."""
        return self.first_backward is not None

    @cached_property
    def setup_by_library(self) -> bool:
        """Whether a function of a library seems to initialize the process group."""
        return any(
            SETUP.search(call.last) and not self.is_defined(call) and call.last != "init_process_group"
            for call in self.calls
            if not call.name.startswith("torch.")
        )

    @cached_property
    def initializes_group(self) -> bool:
        """Whether the program initializes the process group itself."""
        names = {"init_process_group", "init_device_mesh"}
        return any(call.last in names for call in self.calls)

    @cached_property
    def is_distributed(self) -> bool:
        """Whether the program has a process group, either its own or one from a library or framework."""
        return self.initializes_group or self.setup_by_library or bool(self.frameworks)

    @cached_property
    def uses_cuda(self) -> bool:
        """Whether the program uses GPUs."""
        return any("cuda" in name for name in self.identifiers) or any(
            re.match(r"cuda(:\d+)?$", text) for text in self.strings
        )

    @cached_property
    def options(self) -> dict[str, list[CallSite]]:
        """Calls of add_argument by option name, without leading dashes and with _ between words."""
        options: dict[str, list[CallSite]] = {}
        for call in self.calls:
            if call.last == "add_argument":
                for arg in call.node.args:
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                        options.setdefault(arg.value.lstrip("-").replace("-", "_"), []).append(call)
        return options

    def match(self, module: Module, node: ast.AST, problem: str, change: str) -> RuleMatch:
        """Return a match at a node."""
        return RuleMatch(module.path, getattr(node, "lineno", 1), problem, change)

    def calls_of(self, *names: str) -> Iterator[CallSite]:
        """Yield the calls, in code that may run, whose function has one of these names, ignoring the module."""
        for name in names:
            for call in self._calls_by_name.get(name, []):
                if self.is_used(call):
                    yield call

    def uses(self, *names: str) -> bool:
        """Return whether any of these identifiers occurs in the program or is imported by it."""
        return not self._used_names.isdisjoint(names)

    def refers_to(self, *names: str) -> bool:
        """Return whether any code refers to one of these names, under whatever name it was imported."""
        return not self._referenced_names.isdisjoint(names)

    @cached_property
    def _referenced_names(self) -> set[str]:
        return {
            last_part(module.aliases.get(node.id, node.id)) if isinstance(node, ast.Name) else node.attr
            for module in self.modules
            for node in module.nodes
            if isinstance(node, (ast.Name, ast.Attribute))
        }

    @cached_property
    def _used_names(self) -> set[str]:
        return self.identifiers | {last_part(name) for module in self.modules for name in module.imports}

    def is_defined(self, call: CallSite) -> bool:
        """Return whether the called function is defined in the program."""
        return call.last in self.functions

    # --- Functions and their callers ----------------------------------------------------------------------------------

    def callers(self, module: Module, function: FunctionNode) -> list[CallSite]:
        """Return the calls of a function in the program."""
        method = module.is_method(function)
        sites = []
        for call in self._calls_by_name.get(function.name, []):
            base = call.name.rpartition(".")[0]
            if method:
                if not base or base.split(".")[0] in call.module.aliases.values():
                    continue
            elif base and base not in self.module_names:
                continue
            sites.append(call)
        return sites

    def creations(self, parent: ast.ClassDef) -> list[CallSite]:
        """Return the calls that create an instance of a class."""
        return self._calls_by_name.get(parent.name, [])

    def is_used(self, site: Site | CallSite) -> bool:
        """Return whether a node may run, because the script uses its function or a framework calls it."""
        function = site.module.function_of(site.node)
        return function is None or function in self._used_functions

    @cached_property
    def _used_functions(self) -> set[ast.AST]:
        names_by_scope = {module: names_by_function(module) for module in self.modules}
        names = {name for by_function in names_by_scope.values() for name in by_function.get(None, ())}
        pending = [(module, function) for module in self.modules for function in module.functions]
        used: set[ast.AST] = set()
        while True:
            new = [
                (module, function)
                for module, function in pending
                if module.function_of(function) in (None, *used) and is_named(module, function, names)
            ]
            if not new:
                return used
            for module, function in new:
                used.add(function)
                names |= names_by_scope[module].get(function, set())
            pending = [site for site in pending if site[1] not in used]

    # --- Values -------------------------------------------------------------------------------------------------------

    def values(self, module: Module, node: ast.AST) -> list[Site]:
        """Return the expressions that may be the value of a name or attribute."""
        if isinstance(node, ast.Attribute):
            values = [Site(owner, value) for owner in self.modules for value in owner.attributes.get(node.attr, [])]
            for call in self.options.get(node.attr, []):
                values += [Site(call.module, keyword.value) for keyword in call.node.keywords if keyword.arg != "help"]
            return values
        if not isinstance(node, ast.Name):
            return []
        scope = module.scope_of(node)
        while scope is not None:
            assigned = module.assignments.get((scope, node.id))
            if assigned:
                return [Site(module, value) for value in assigned]
            parameters = self._arguments_for(module, scope, node.id)
            if parameters is not None:
                return parameters
            scope = module.scope_of(scope)
        assigned = module.assignments.get((None, node.id), [])
        if not assigned and node.id in module.aliases:
            name = module.aliases[node.id]
            return [
                Site(owner, value)
                for owner in self.modules
                if owner.name.removesuffix(".__init__") == name.rpartition(".")[0]
                for value in owner.assignments.get((None, last_part(name)), [])
            ]
        return [Site(module, value) for value in assigned]

    def _arguments_for(self, module: Module, scope: ast.AST, name: str) -> list[Site] | None:
        """Return the values that callers pass for a parameter, or None if the function has no such parameter."""
        if not isinstance(scope, FunctionNode):
            return None
        names = [arg.arg for arg in (*scope.args.posonlyargs, *scope.args.args)]
        if name not in (*names, *(arg.arg for arg in scope.args.kwonlyargs)):
            return None
        shift = 1 if module.is_method(scope) else 0
        callers = self.callers(module, scope)
        parent = module.class_of(scope)
        if parent is not None and scope.name == "__init__":
            callers = self.creations(parent)
        passed = []
        for call in callers:
            position = names.index(name) - shift if name in names else -1
            value = next((keyword.value for keyword in call.node.keywords if keyword.arg == name), None)
            if value is None and 0 <= position < len(call.node.args):
                value = call.node.args[position]
            if value is not None:
                passed.append(Site(call.module, value))
        return passed

    def reachable(self, module: Module, node: ast.AST) -> Iterator[Site]:
        """Yield the nodes in an expression, in the values of its names and in the functions it calls."""
        pending = [(module, node, 0)]
        visited: set[ast.AST] = set()
        while pending and len(visited) < MAX_NODES:
            owner, expression, depth = pending.pop()
            for child in ast.walk(expression):
                if child in visited:
                    continue
                visited.add(child)
                yield Site(owner, child)
                if depth >= MAX_DEPTH:
                    continue
                for site in self.values(owner, child):
                    pending.append((site.module, site.node, depth + 1))
                if isinstance(child, ast.Call):
                    for site in self._returned(owner, child):
                        pending.append((site.module, site.node, depth + 1))

    def _returned(self, module: Module, call: ast.Call) -> list[Site]:
        name = module.qualified_name(call.func)
        base = name.rpartition(".")[0]
        if base and base not in self.module_names and base.split(".")[0] in module.aliases.values():
            return []  # a library's function
        return [
            Site(owner, child.value)
            for owner, function in self.functions.get(last_part(name), [])
            for child in ast.walk(function)
            if isinstance(child, ast.Return) and child.value is not None
        ]

    def mentions(self, module: Module, node: ast.AST, predicate: Callable[[Site], bool]) -> bool:
        """Return whether an expression, including everything it refers to, contains a node that satisfies a
        predicate.
        """
        return any(predicate(site) for site in self.reachable(module, node))

    def is_in_distributed_branch(self, module: Module, node: ast.AST) -> bool:
        """Return whether a condition that encloses a node distinguishes a distributed run from a single process."""
        for child, parent in module.ancestors(node):
            if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
                names = [site.node for site in self._names_of(module, parent.test)]
                if any(DISTRIBUTED.search(name_of(name)) or is_rank(Site(module, name)) for name in names):
                    return True
        return False

    @staticmethod
    def _names_of(module: Module, node: ast.AST) -> Iterator[Site]:
        for child in ast.walk(node):
            if isinstance(child, (ast.Name, ast.Attribute, ast.Constant)):
                yield Site(module, child)


def names_by_function(module: Module) -> dict[ast.AST | None, set[str]]:
    """Return the names that each function uses, excluding its inner functions; the key None has those used on
    import.
    """
    names: dict[ast.AST | None, set[str]] = {}
    functions: dict[ast.AST, ast.AST | None] = {module.tree: None}
    for node in module.nodes:  # parents come first
        function = node if isinstance(node, FunctionNode) else functions[module.parents.get(node, module.tree)]
        if is_main_block(module, node):
            function = node  # the main block of an imported module belongs to another program
        functions[node] = function
        if isinstance(node, ast.Name):
            names.setdefault(function, set()).update((node.id, last_part(module.aliases.get(node.id, ""))))
        elif isinstance(node, ast.Attribute):
            names.setdefault(function, set()).add(node.attr)
    return names


def is_main_block(module: Module, node: ast.AST) -> bool:
    """Return whether a node is the block of an imported module that runs only if the module is the script."""
    if module.name == "__main__" or not isinstance(node, ast.If) or module.parents[node] is not module.tree:
        return False
    return "__main__" in ast.unparse(node.test)


def is_named(module: Module, function: FunctionNode, names: Collection[str]) -> bool:
    """Return whether code that uses these names may call a function."""
    if function.name in names:
        return True
    parent = module.class_of(function)
    if parent is None:
        # a function of the script may be called by its decorator, as with Hydra and click
        return bool(function.decorator_list) and module.name == "__main__" and module.function_of(function) is None
    if parent.name not in names:
        return False
    return bool(HOOKS.fullmatch(function.name) or function.decorator_list or parent.bases)


def name_of(node: ast.AST) -> str:
    """Return the identifier, last attribute or string in a node, otherwise an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


RANK = re.compile(r"(?i)(^|_)(rank|proc_id|process_index|procid|worker_id|ordinal|replica_id)$|^get_\w*rank$|^rank_")
LOCAL_RANK = re.compile(
    r"(?i)local_?rank|local_process_index|local_process_rank|localid|get_node_local_rank|^gpu(_id)?$"
)
GLOBAL_RANK = re.compile(r"^get_(global_)?rank$|^RANK$|^SLURM_PROCID$|^OMPI_COMM_WORLD_RANK$|^global_rank$")
WORLD_SIZE = re.compile(r"(?i)world_?size|num_(replicas|processes|shards|gpus|nodes)$|n_?gpus|nnodes|process_count")


def is_rank(site: Site) -> bool:
    """Return whether a node denotes a global or local rank."""
    return bool(RANK.search(name_of(site.node)))


def is_local_rank(site: Site) -> bool:
    """Return whether a node denotes the local rank."""
    return bool(LOCAL_RANK.search(name_of(site.node)))


def is_global_rank(site: Site) -> bool:
    """Return whether a node reads the global rank."""
    return bool(GLOBAL_RANK.search(name_of(site.node)))


def is_any_rank(site: Site) -> bool:
    """Return whether a node names a rank, local or global."""
    return is_rank(site) or is_local_rank(site) or is_global_rank(site)


def is_world_size(site: Site) -> bool:
    """Return whether a node denotes the world size."""
    return bool(WORLD_SIZE.search(name_of(site.node)))
