# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Select this process's environment variables by name and pattern."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any


def parse_patterns(terms: Iterable[Any]) -> list[str]:
    """Return the names and patterns in terms: lists, or strings of names separated by commas or spaces."""
    patterns: list[str] = []
    for term in terms:
        if isinstance(term, str):
            patterns += [pattern for pattern in re.split(r"[,\s]+", term.strip("[]")) if pattern]
        else:
            patterns += [str(pattern) for pattern in term]
    return patterns


def matching_environment(patterns: Iterable[str]) -> dict[str, str]:
    """Return the variables with matching names."""
    patterns = list(patterns)
    return {
        name: value for name, value in os.environ.items() if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def missing_names(patterns: Iterable[str]) -> list[str]:
    """Return the names of variables that are not set, ignoring patterns."""
    return [pattern for pattern in patterns if not re.search(r"[*?\[]", pattern) and pattern not in os.environ]


def missing_names_message(names: Iterable[str]) -> str:
    """Return a message about variables that are not set."""
    return f"not set in the environment of ansible-playbook: {', '.join(names)}; export them here first, or remove them"
