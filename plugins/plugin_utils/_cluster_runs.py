# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that may be alive on machines about to be removed, according to run records. Private to this collection."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path


def runs_on(directory: Path, addresses: Collection[str]) -> list[str]:
    """Names of the runs on these addresses that are not known to have ended.

    directory: where the records of runs lie. A record keeps the run's token until its end was seen. Records that cannot
    be read tell of nothing.
    """
    found = []
    for token in sorted(directory.glob("*/token")):
        if token.parent.is_symlink():  # `latest`, which is another one's second name
            continue
        try:
            plan = json.loads((token.parent / "plan.json").read_text(encoding="utf-8"))
            nodes = {str(node["address"]) for node in plan["nodes"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if nodes & set(addresses):
            found.append(token.parent.name)
    return found
