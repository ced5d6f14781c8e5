# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find runs that may still be active on machines that are about to be removed, based on the run records."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path


def find_active_runs(directory: Path, addresses: Collection[str]) -> list[str]:
    """Return the names of runs on these addresses that may still be active.

    A run record in the directory contains the run's token until the run's end has been observed. Unreadable records are
    ignored.
    """
    runs = []
    for token_path in sorted(directory.glob("*/token")):
        if token_path.parent.is_symlink():  # `latest` is a link to another record
            continue
        try:
            plan = json.loads((token_path.parent / "plan.json").read_text(encoding="utf-8"))
            nodes = {str(node["address"]) for node in plan["nodes"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if nodes & set(addresses):
            runs.append(token_path.parent.name)
    return runs
