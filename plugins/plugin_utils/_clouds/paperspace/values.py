# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse values that the Paperspace API returns in more than one format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def parse_integer(value: Any) -> int | None:
    """Return a size or count given as an integer or a decimal string, or None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return int(str(value)) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def region_code(region: str) -> str:
    """Return a region's code, for example "ny2" for "East Coast (NY2)", "NY2" or "ny2"."""
    inner = re.search(r"\(([^()]+)\)\s*$", region)
    return (inner.group(1) if inner else region).strip().lower()


def gpu_count(machine: Mapping[str, Any]) -> int:
    """Return a machine's GPU count: the sum of its accelerators, or N if its type ends in xN, or 1; 0 for C1, C2 ..."""
    accelerators = machine.get("accelerators")
    counted = sum(
        max(0, parse_integer(accelerator.get("count")) or 0)
        for accelerator in (accelerators if isinstance(accelerators, list) else [])
        if isinstance(accelerator, dict)
    )
    if counted > 0:
        return counted
    machine_type = str(machine.get("machineType") or "")
    if not machine_type or re.fullmatch(r"C\d+", machine_type, re.IGNORECASE):
        return 0
    suffix = re.search(r"x(\d{1,3})$", machine_type)
    return int(suffix.group(1)) if suffix else 1
