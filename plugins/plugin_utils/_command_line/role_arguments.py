# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Group nodes by the values of their variables, and describe invalid values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import strings_in

NAME = re.compile(r"[A-Za-z_]\w*")
# Templates that read these depend on the node, regardless of the variables' values.
HOST_DEPENDENT = frozenset({"hostvars", "vars", "varnames"})


def template_names(value: object) -> set[str]:
    """Return all names in a nested value's templates that could be variables, with or without a leading underscore."""
    return {name for text in strings_in(value) if "{{" in text or "{%" in text for name in NAME.findall(text)}


def referenced_names(names: Iterable[str], variables: Mapping[str, Any]) -> set[str]:
    """Return these variables, and all variables that their templates read, directly or indirectly."""
    referenced: set[str] = set()
    new_names = set(names)
    while new_names:
        referenced |= new_names
        new_names = {
            reference
            for name in new_names - HOST_DEPENDENT
            if name in variables
            for reference in template_names(variables[name])
        } - referenced
    return referenced


def group_by_values(names: Collection[str], nodes: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Group the nodes by the values of these variables.

    nodes: the variables of each node, before templates are rendered.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for node, variables in nodes.items():
        referenced = referenced_names(names, variables)
        node_key = "" if referenced.isdisjoint(HOST_DEPENDENT) else node
        values = ((name, repr(variables[name])) for name in sorted(referenced - HOST_DEPENDENT) if name in variables)
        groups.setdefault((node_key, *values), []).append(node)
    return list(groups.values())


def describe_wrong_values(wrong_values: Iterable[tuple[str, str, list[str]]], node_count: int) -> list[str]:
    """Return one sentence for each invalid value, covering all nodes that have it.

    wrong_values: a role, the problem with one of its variables, and the nodes. node_count: the number of all nodes.
    """
    nodes_by_problem: dict[tuple[str, str], dict[str, None]] = {}
    for role, problem, nodes in wrong_values:
        nodes_by_problem.setdefault((role, problem), {}).update(dict.fromkeys(nodes))
    return [
        f"the role {role} rejects a value{'' if len(nodes) == node_count else f' on {abbreviate(nodes)}'}: {problem}"
        for (role, problem), nodes in nodes_by_problem.items()
    ]
