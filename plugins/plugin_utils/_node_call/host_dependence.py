# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a task's options are the same on all nodes, so that they can be templated once for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Names through which an expression reads variables that it does not name, and Ansible's own names that differ between
# hosts.
INDIRECT = frozenset(("vars", "varnames", "template", "inventory_hostname", "inventory_hostname_short"))
CONDITIONS = frozenset(("when", "changed_when", "failed_when", "until"))  # keywords that are expressions without braces
LOOKUPS = frozenset(("lookup", "query", "q"))
HOSTVARS = "hostvars"  # its templates are rendered for the host that an expression names, wherever the value is used


def texts_within(value: Any) -> Iterable[str]:
    """Yield all texts in a value, including the keys of mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from texts_within(key)
            yield from texts_within(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from texts_within(entry)


def templates_within(value: Any) -> list[str]:
    """Return the texts in a value that may be templates."""
    return [text for text in texts_within(value) if "{{" in text or "{%" in text]


def expressions_within(source: Any) -> list[str]:
    """Return the templates in a task's source, including its conditions, as templates."""
    if isinstance(source, Mapping):
        conditions = [f"{{{{ {text} }}}}" for key in CONDITIONS & source.keys() for text in texts_within(source[key])]
        return conditions + templates_within({key: value for key, value in source.items() if key not in CONDITIONS})
    if isinstance(source, list | tuple):
        return [text for entry in source for text in expressions_within(entry)]
    return templates_within(source)


def identifiers(template: str) -> Iterable[str]:
    """Return all words in a template that may be variable names."""
    return IDENTIFIER.findall(template)


def variable_names(template: str) -> Iterable[str]:
    """Return the variable names in a template, without attributes, filters and keys, which identifiers() also returns.

    The arguments of a lookup count as names, since it may read variables.
    """
    try:
        tree = Environment(autoescape=True).parse(template)
    except TemplateSyntaxError:  # valid only with an extension, or invalid
        return identifiers(template)
    names = [name.name for name in tree.find_all(nodes.Name)]
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name in LOOKUPS:
            names += [name for text in call.find_all(nodes.Const) for name in identifiers(str(text.value))]
    return names


def reachable_names(
    source: Any, variables: Mapping[str, Any], names_in: Callable[[str], Iterable[str]] = identifiers
) -> set[str]:
    """Return all names in a task's expressions and, as long as they are templates, in the variables that it uses.

    source: the task as parsed from YAML. variables: those of its host, not templated. names_in: how to read the names
    in a template.
    """
    names: set[str] = set()
    pending = expressions_within(source)
    while pending:
        for name in names_in(pending.pop()):
            if name not in names:
                names.add(name)
                if name in variables and name != HOSTVARS:
                    pending += templates_within(variables[name])
    return names


def reached_names(names: Set[str], source: Any, variables: Mapping[str, Any]) -> set[str]:
    """Return which of the given variables a task reaches: see reachable_names().

    Templates are parsed, which takes as long as rendering them, only if one of the names is a word in them.
    """
    if not names & reachable_names(source, variables):
        return set()
    return set(names & reachable_names(source, variables, variable_names))


def varying_names(variables: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the variables whose untemplated values differ between hosts."""
    first = variables[0]
    names: set[str] = set()
    for other in variables[1:]:
        names |= first.keys() ^ other.keys()
        names |= {name for name, value in first.items() if name in other and not is_same_value(value, other[name])}
    return names


def is_same_value(value: Any, other: Any) -> bool:
    """Return whether two values are the same. The registered results of a run_once task are a single object.

    A value that is encrypted with Ansible Vault is not decrypted, which takes time, and its password may be unknown.
    """
    if value is other:
        return True
    ciphertexts = [getattr(item, "_ciphertext", None) for item in (value, other)]
    if any(ciphertexts):
        return ciphertexts[0] == ciphertexts[1]
    try:
        return bool(value == other)
    except Exception:  # a value inside it cannot be decrypted
        return False
