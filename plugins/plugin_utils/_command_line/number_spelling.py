# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers as they were written. Private to this collection, controller only.

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
WORD = re.compile(r"[^\s,\[\]{}\"'()]+")  # a word in a text that is searched for numbers
PLAIN = re.compile(r"(?:[&!]\S*\s+)*([^,\[\]{}\n]+)")  # an unquoted value, after its anchor and tag
QUOTED = re.compile(r"[\"'|>]|\{\{")  # start of a quoted value or template


class UnknownSpelling(ValueError):
    """A number's original spelling cannot be determined."""


def is_number(value: object) -> bool:
    """Whether a value is a number or a date, for which YAML may have read a different text."""
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def as_written(value: Any, loader: DataLoader) -> str:
    """A number or date as it was written; one computed by a template, as Python prints it.

    Raises UnknownSpelling if the original text cannot be determined.
    """
    origin = Origin.get_tag(value)
    if origin is None:
        return str(value)
    places = [place for text in source_texts(origin, loader) for place in [beginning(text, origin)] if place]
    spelled = spellings(value, places, exact=origin.col_num is not None)
    if len(spelled) == 1:
        return spelled.pop()
    computed = any("{{" in place and (origin.col_num is None or QUOTED.match(place)) for place in places)
    unwritten = origin.line_num is None and not places  # computed by a program
    if not spelled and (computed or unwritten):
        return str(value)
    raise UnknownSpelling


def source_texts(origin: Origin, loader: DataLoader) -> list[str]:
    """The texts that may hold the original of a value with this origin."""
    if origin.path:
        try:
            return [str(loader.get_text_file_contents(origin.path))]
        except AnsibleError:  # the file is gone, or a program produced the text
            return []
    if origin.description and "-e" in origin.description:
        return [text for text in map(str, context.CLIARGS.get("extra_vars", ())) if text[:1] in ("{", "[")]
    return []


def beginning(text: str, origin: Origin) -> str:
    """The text from the start of the value on, as far as known; otherwise its line, or the whole text."""
    if not origin.line_num:
        return text
    lines = text.splitlines()[origin.line_num - 1 :]
    return "\n".join(lines)[origin.col_num - 1 :] if origin.col_num else "".join(lines[:1])


def spellings(value: Any, places: Iterable[str], exact: bool) -> set[str]:
    """The spellings in the places that mean this value. exact: it is at the beginning of each place."""
    found: Callable[[str], list[str]] = first_plain if exact else WORD.findall
    return {word for place in places for word in found(place) if means(word, value)}


def first_plain(place: str) -> list[str]:
    """The unquoted value at the beginning of a text, if there is one."""
    match = PLAIN.match(place)
    return [match[1].partition(" #")[0].strip()] if match else []


def means(word: str, value: Any) -> bool:
    """Whether YAML or JSON reads this text as this value."""
    return any(isinstance(value, type(read)) and bool(read == value) for read in readings(word))


def readings(word: str) -> list[Any]:
    """How YAML and JSON read a text; they differ for numbers such as 1e-3."""
    found: list[Any] = []
    with contextlib.suppress(yaml.YAMLError, ValueError):  # ValueError: an impossible date
        found.append(yaml.safe_load(word))
    with contextlib.suppress(ValueError):
        found.append(json.loads(word))
    return [read for read in found if is_number(read)]
