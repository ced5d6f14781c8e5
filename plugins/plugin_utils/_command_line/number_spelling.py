# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recover the original spelling of numbers.

YAML reads 007 as 7, 0x1F as 31, 1_0 as 10 and 1:30 as 90, and a job would get these numbers. Ansible records each
value's origin, so the original text can be read there.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import yaml
from ansible import context
from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

NUMBERS = (int, float, datetime.date)
TOKEN = re.compile(r"[^\s,\[\]{}\"'()]+")  # a word in a text that is being searched for numbers
UNQUOTED_VALUE = re.compile(r"(?:[&!]\S*\s+)*([^,\[\]{}\n]+)")  # an unquoted value, following its anchor and tag
QUOTED = re.compile(r"[\"'|>]|\{\{")  # start of a quoted value or of a template


class UnknownSpellingError(ValueError):
    """A number's original spelling cannot be determined."""


def is_number(value: object) -> bool:
    """Return whether a value is a number or a date, which may have been spelled differently in the YAML text."""
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def original_spelling(value: Any, loader: DataLoader) -> str:
    """Return a number or date as it was written or, if a template computed it, as Python prints it.

    Raise UnknownSpellingError if the original text cannot be determined.
    """
    origin = Origin.get_tag(value)
    if origin is None:
        return str(value)
    candidates = [
        candidate for text in source_texts(origin, loader) for candidate in [text_from_value(text, origin)] if candidate
    ]
    matches = spellings(value, candidates, exact=origin.col_num is not None)
    if len(matches) == 1:
        return matches.pop()
    is_computed = any(
        "{{" in candidate and (origin.col_num is None or QUOTED.match(candidate)) for candidate in candidates
    )
    has_no_source = origin.line_num is None and not candidates  # computed by a program
    if not matches and (is_computed or has_no_source):
        return str(value)
    raise UnknownSpellingError


def source_texts(origin: Origin, loader: DataLoader) -> list[str]:
    """Return the texts that may contain the original spelling of a value with this origin."""
    if origin.path:
        try:
            return [str(loader.get_text_file_contents(origin.path))]
        except AnsibleError:  # the file no longer exists, or a program produced the text
            return []
    if origin.description and "-e" in origin.description:
        return [text for text in map(str, context.CLIARGS.get("extra_vars", ())) if text[:1] in ("{", "[")]
    return []


def text_from_value(text: str, origin: Origin) -> str:
    """Return the text from the start of the value onward, if known; otherwise the value's line, or the whole text."""
    if not origin.line_num:
        return text
    lines = text.splitlines()[origin.line_num - 1 :]
    return "\n".join(lines)[origin.col_num - 1 :] if origin.col_num else "".join(lines[:1])


def spellings(value: Any, candidates: Iterable[str], exact: bool) -> set[str]:
    """Return the spellings of this value in the candidates. exact: it is at the beginning of each candidate."""
    find_tokens: Callable[[str], list[str]] = first_unquoted_value if exact else TOKEN.findall
    return {token for candidate in candidates for token in find_tokens(candidate) if is_spelling_of(token, value)}


def first_unquoted_value(text: str) -> list[str]:
    """Return the unquoted value at the beginning of a text, if any."""
    match = UNQUOTED_VALUE.match(text)
    return [match[1].partition(" #")[0].strip()] if match else []


def is_spelling_of(token: str, value: Any) -> bool:
    """Return whether YAML or JSON parses this text as this value."""
    return any(isinstance(value, type(parsed)) and bool(parsed == value) for parsed in parse_numbers(token))


def parse_numbers(token: str) -> list[Any]:
    """Return the numbers that YAML and JSON parse from a text; for 1e-3, for example, the two differ."""
    values: list[Any] = []
    with contextlib.suppress(yaml.YAMLError, ValueError):  # ValueError: an impossible date
        values.append(yaml.safe_load(token))
    with contextlib.suppress(ValueError):
        values.append(json.loads(token))
    return [parsed for parsed in values if is_number(parsed)]
