# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings and arguments of a run, without secrets, for its record.

Unlike output, they are used again: so a value is removed only if its name or its form marks it as secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._report.redact import (
    BEARER,
    MAX_DEPTH,
    NETRC,
    REMOVED,
    SECRET_KEY,
    SIGNED_URL,
    URL_PASSWORD,
    WHOLE,
    is_ordinary,
)

# Names that match although their values are a location, a kind or a quantity.
NOT_SECRET = re.compile(
    r".*[_-](?:file|path|dir|directory|env|type|name|count|len|length|size|limit|dropout|prob|weight|loss|rate|pooling)s?",
    re.IGNORECASE,
)
PLAIN_VALUE = re.compile(r"[-+.\deE_]{1,20}|true|false|yes|no|null|none|auto|[<\[${].*|", re.IGNORECASE)
# A variable in a command. Does not contain a colon, which separates the paths of a mount.
VARIABLE = re.compile(r"(?<![\w.-])(?P<name>[\w.-]{1,100})=(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;\"']+)")


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option, variable or key with this name is secret."""
    plain = name.lstrip("-+~").replace("-", "_")
    return bool(SECRET_KEY.fullmatch(plain)) and not is_ordinary(plain) and not NOT_SECRET.fullmatch(plain)


def strip_known_secret_formats(text: str) -> str:
    """Return a text without values that are recognizable as secrets by their format."""
    text = WHOLE.sub(REMOVED, text)
    text = URL_PASSWORD.sub(rf"\g<scheme>{REMOVED}@", text)
    for pattern in (NETRC, SIGNED_URL, BEARER):
        text = pattern.sub(rf"\g<name>{REMOVED}", text)
    return text


def strip_secret_values(text: str) -> str:
    """Return a text without the secret values of variables."""

    def replace(match: re.Match[str]) -> str:
        is_plain = not is_secret_name(match["name"]) or PLAIN_VALUE.fullmatch(match["value"])
        return match[0] if is_plain else f"{match['name']}={REMOVED}"

    return VARIABLE.sub(replace, strip_known_secret_formats(text))


def strip_secret_arguments(arguments: list[str]) -> list[str]:
    """Return arguments without secrets. An option and its value may be one argument or two arguments."""
    cleaned = []
    option = ""  # the option that the next argument belongs to
    for argument in arguments:
        is_value = option and not argument.startswith("--") and not PLAIN_VALUE.fullmatch(argument)
        cleaned.append(REMOVED if is_value else strip_secret_values(argument))
        is_option = argument.startswith("-") and "=" not in argument
        option = argument if is_option and is_secret_name(argument) else ""
    return cleaned


def strip_secrets(value: Any, depth: int = 0) -> Any:
    """Return a setting without secrets."""
    if depth > MAX_DEPTH:
        return REMOVED
    if isinstance(value, str):
        return strip_secret_values(value)
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return strip_secret_arguments(value)
        return [strip_secrets(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: REMOVED
        if isinstance(item, str) and is_secret_name(str(key)) and not PLAIN_VALUE.fullmatch(item)
        else strip_secrets(item, depth + 1)
        for key, item in value.items()
    }


def has_removed(value: Any) -> bool:
    """Return whether a secret was removed from a setting. It comes from a record, whose nesting depth is limited."""
    if isinstance(value, str):
        return REMOVED in value
    entries = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(has_removed, entries))
