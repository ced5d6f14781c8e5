# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read text files that may not exist, and write text files."""

from __future__ import annotations

import os

MAX_VALUE = 65536  # characters


def read(path: str, limit: int = -1) -> str:
    """Return the text of a file, or "" if it cannot be read. limit: number of characters to read; all if negative."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def read_value(path: str) -> str:
    """Return the content of a small kernel file without surrounding whitespace, or "" if it cannot be read.

    Some kernel files exist but cannot be read, such as unused GID table entries.
    """
    return read(path, MAX_VALUE).strip()


def write(path: str, text: str) -> None:
    """Write a file atomically, and create its directory if it is missing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
