# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments and environment of a job, as written by the user."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.plugin_utils._command_line.number_spelling import (
    UnknownSpellingError,
    is_number,
    original_spelling,
)

LIST_EXAMPLE = """-e '{"launch_args": ["--epochs", "3"]}'"""


def parse_arguments(value: object, loader: DataLoader) -> list[str]:
    """Return a job's arguments from the value of launch_args: a list, or a text that is split as by a shell.

    Nothing is expanded. Numbers and dates stay as written in the file or after -e. Raise ValueError that lists all
    problems.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return split_arguments(value)
    if not isinstance(value, (list, tuple)):
        return [parse_argument(value, loader)]
    arguments, problems = [], []
    for item in value:
        try:
            arguments.append(parse_argument(item, loader))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return arguments


def split_arguments(text: str) -> list[str]:
    """Split a text as a POSIX shell does. Raise ValueError if it cannot be split or looks like a list."""
    if text.lstrip().startswith("["):
        raise ValueError(
            f"launch_args is the string {ascii(text)[:80]}, which looks like a list. To pass a list, use JSON: "
            f"{LIST_EXAMPLE}. To pass a string, omit the brackets: -e \"launch_args='--epochs 3'\""
        )
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(
            f"launch_args is the string {ascii(text)[:80]}, which cannot be split into arguments: {error}. Close "
            f"the quote, or pass a list: {LIST_EXAMPLE}"
        ) from None  # Ansible would append the cause, and so repeat the message


def parse_argument(item: object, loader: DataLoader) -> str:
    """Return one argument as text. Raise ValueError if its original spelling is unknown."""
    if isinstance(item, str):
        return str(item)
    if is_number(item):
        try:
            return original_spelling(item, loader)
        except UnknownSpellingError as error:
            raise ValueError(
                f"launch_args has {item} without quotes, so YAML may have changed it (it reads 007 as 7, and 0x1F as "
                f"31): put the argument in quotes, as in {LIST_EXAMPLE}"
            ) from error
    kind = "no value" if item is None else str(item).lower() if isinstance(item, bool) else "a list or dictionary"
    raise ValueError(f"launch_args has {kind} where a string is needed: put the argument in quotes")


def parse_environment(variables: Mapping[str, Any], loader: DataLoader) -> dict[str, Any]:
    """Return a job's environment, with numbers and dates as the user wrote them.

    Raise ValueError if the original spelling of a value is unknown; the message does not show it.
    """
    environment, unknown = {}, []
    for name, value in variables.items():
        try:
            environment[name] = original_spelling(value, loader) if is_number(value) else value
        except UnknownSpellingError:
            unknown.append(name)
    if unknown:
        raise ValueError(
            f"launch_environment has {', '.join(unknown)} without quotes, so YAML may have changed it (it reads 007 "
            "as 7, and 0x1F as 31): put the value in quotes"
        )
    return environment
