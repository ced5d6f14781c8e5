# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a task has the same options on all nodes, so that they can be templated once for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Names by which an expression reads variables that it does not name, and Ansible's own names that differ between hosts.
INDIRECT = frozenset(("vars", "varnames", "inventory_hostname", "inventory_hostname_short"))


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


def reachable_names(source: Any, variables: Mapping[str, Any]) -> set[str]:
    """Return all names in a task's source and, as long as they are templates, in the variables that it names.

    source: the task as parsed from YAML. variables: those of its host, not templated.
    """
    names: set[str] = set()
    pending = [source]
    while pending:
        for text in texts_within(pending.pop()):
            for name in IDENTIFIER.findall(text):
                if name not in names:
                    names.add(name)
                    if name in variables:
                        pending.append(templates_within(variables[name]))
    return names


def templates_within(value: Any) -> list[str]:
    """Return the texts in a value that may be templates."""
    return [text for text in texts_within(value) if "{{" in text or "{%" in text]


def varying_names(variables: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the variables whose values, not templated, are not the same on all hosts."""
    first = variables[0]
    names: set[str] = set()
    for other in variables[1:]:
        names |= first.keys() ^ other.keys()
        names |= {name for name, value in first.items() if name in other and not same(value, other[name])}
    return names


def same(value: Any, other: Any) -> bool:
    """Return whether two values are the same. Registered results of a task that runs once are one object."""
    return value is other or bool(value == other)
