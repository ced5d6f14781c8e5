# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that may be alive on machines about to be removed, according to run records. Private to this collection."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path


def runs_on(directory: Path, addresses: Collection[str]) -> list[str]:
    """Names of runs on these addresses that are not known to have ended.

    directory: of the runs' records. A record keeps the run's token until the run's end was seen. Unreadable records are
    ignored.
    """
    found = []
    for token in sorted(directory.glob("*/token")):
        if token.parent.is_symlink():  # `latest` is a link to another record
            continue
        try:
            plan = json.loads((token.parent / "plan.json").read_text(encoding="utf-8"))
            nodes = {str(node["address"]) for node in plan["nodes"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if nodes & set(addresses):
            found.append(token.parent.name)
    return found
