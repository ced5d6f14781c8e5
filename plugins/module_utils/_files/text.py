# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text files that may not exist. Private to this collection. Runs on the node, standard library only, Python >= 3.8."""

from __future__ import annotations


def read(path: str) -> str:
    """The text of a file, empty if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
