# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the contents of mounts on several nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files.name_list import format_names


def listing_differences(listings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return a line for each mount whose contents differ between nodes."""
    lines = []
    for path in sorted({path for mounts in listings.values() for path in mounts}):
        nodes_by_listing: dict[tuple[int, str], list[str]] = {}
        for node, mounts in listings.items():
            if path in mounts:
                nodes_by_listing.setdefault((mounts[path]["count"], mounts[path]["digest"]), []).append(node)
        if len(nodes_by_listing) > 1:
            groups, counts = [], set()
            for (count, _digest), nodes in sorted(nodes_by_listing.items(), key=lambda entry: -len(entry[1])):
                groups.append(f"{count} {'other ' if count in counts else ''}names on {format_names(nodes, 3)}")
                counts.add(count)
            lines.append(f"{path}: {', '.join(groups)}")
    return lines
