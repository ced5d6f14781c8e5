# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose names for the runs that a sequence launches."""

from __future__ import annotations

from pathlib import Path


def free_name(runs: Path, name: str) -> str:
    """Return a name that no record has yet: this one, or with a number appended. runs: the records' directory."""
    number = 1
    while (runs / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return name if number == 1 else f"{name}-{number}"
