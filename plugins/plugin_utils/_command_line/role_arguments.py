# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes share the values of variables, and what is said of wrong ones. Private, controller only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._rank_table import some
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import strings_in

NAME = re.compile(r"[A-Za-z_]\w*")
# What a template that reads them finds depends on the node, whatever the variables are.
ANYTHING = frozenset({"hostvars", "vars", "varnames"})


def names_in(value: object) -> set[str]:
    """All words in the templates of a nested value that could be names of variables, an underscore first or not."""
    return {name for text in strings_in(value) if "{{" in text or "{%" in text for name in NAME.findall(text)}


def read_by(names: Iterable[str], variables: Mapping[str, Any]) -> set[str]:
    """These variables, and all that their templates read, directly or through others."""
    found: set[str] = set()
    fresh = set(names)
    while fresh:
        found |= fresh
        fresh = {one for name in fresh - ANYTHING if name in variables for one in names_in(variables[name])} - found
    return found


def sharing(names: Collection[str], nodes: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The nodes, in groups in which these variables have the same values.

    nodes: the variables of each node, before templates are rendered.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for node, variables in nodes.items():
        read = read_by(names, variables)
        own = "" if read.isdisjoint(ANYTHING) else node
        values = ((name, repr(variables[name])) for name in sorted(read - ANYTHING) if name in variables)
        groups.setdefault((own, *values), []).append(node)
    return list(groups.values())


def refusals(wrong: Iterable[tuple[str, str, list[str]]], number: int) -> list[str]:
    """One sentence for each wrong value, said once of all nodes that have it.

    wrong: a role, what is wrong with one of its variables, and the nodes. number: how many nodes there are.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for role, why, nodes in wrong:
        found.setdefault((role, why), {}).update(dict.fromkeys(nodes))
    return [
        f"the role {role} refuses a value{'' if len(nodes) == number else f' on {some(nodes)}'}: {why}"
        for (role, why), nodes in found.items()
    ]
