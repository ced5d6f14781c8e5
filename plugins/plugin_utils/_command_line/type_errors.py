# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Describe values of a wrong type, of which Ansible's own messages name Python classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a dictionary",
    "NoneType": "empty",
}
TYPE_ERROR = re.compile(
    r"(?P<subject>argument|Elements value for option) '(?P<name>[^']+)'(?: is of type (?P<type>\w+))?"
    r"(?: found in '(?P<parents>[^']+)'\.?)?(?: is of type (?P<element>\w+))?"
    r" and we were unable to convert to (?P<expected>\w+): "
)
"""A message of Ansible's ArgumentSpecValidator; for elements of lists, the type follows the parents."""


def describe_type_errors(messages: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Return a validator's messages, with those on types reworded. values: the validated values, by option.

    A message that is the end of another message is omitted: the validator adds both for the elements of lists.
    """
    messages = list(messages)
    details = [text for text in messages if not any(other != text and other.endswith(text) for other in messages)]
    return [describe_type_error(text, values) for text in details]


def describe_type_error(message: str, values: Mapping[str, Any]) -> str:
    """Return the reworded message, or the message itself if it is not on a type."""
    match = TYPE_ERROR.match(message)
    if match is None or match["expected"] not in TYPES:
        return message
    name = f"{match['name']} in {match['parents'].replace(' -> ', '.')}" if match["parents"] else match["name"]
    actual = TYPES.get(match["type"] or match["element"], match["type"] or match["element"])
    if match["subject"] != "argument":
        name = f"an entry of {name}"
    elif not match["parents"] and match["expected"] not in ("dict", "list") and is_scalar(values.get(match["name"])):
        actual = ascii(values[match["name"]])[:80]
    return f"{name} is {actual}, but must be {TYPES[match['expected']]}"


def is_scalar(value: object) -> bool:
    """Return whether a value is shown in the message, shortened, rather than described by its type."""
    return isinstance(value, (str, int, float))
