# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A table of the Python environments on all nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

HEADER = ("NAME", "PYTHON", "TORCH", "SIZE", "FREED BY REMOVAL", "LAST USED", "IN USE BY", "NODES")


def format_size(size: float) -> str:
    """Format a number of bytes in GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def merge_environments(replies: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the table: nodes with the same versions share a row, with the largest size and the latest
    use.
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for node, reply in replies.items():
        for entry in reply.get("environments", []) if isinstance(reply, Mapping) else []:
            key = (printable(entry["name"]), printable(entry["python"] or "?"), printable(entry["torch"] or "-"))
            row = rows.setdefault(key, {"size": 0, "freed": 0, "used": 0.0, "runs": set(), "nodes": []})
            row["size"], row["freed"] = max(row["size"], entry["size"]), max(row["freed"], entry["freed"])
            row["used"] = max(row["used"], entry["used"])
            row["runs"] |= set(map(printable, entry["runs"])) or ({"a process"} if entry["processes"] else set())
            row["nodes"].append(node)
    lines: list[tuple[str, ...]] = []
    for key, row in sorted(rows.items()):
        used = time.strftime("%Y-%m-%d", time.localtime(row["used"])) if row["used"] else "?"
        sizes = (format_size(row["size"]), format_size(row["freed"]))
        lines.append((*key, *sizes, used, ", ".join(sorted(row["runs"])) or "-", ", ".join(row["nodes"])))
    return lines


def render_table(replies: Mapping[str, Any]) -> str:
    """Render the table of environments, with the sizes per node."""
    lines = [HEADER, *merge_environments(replies)]
    if len(lines) == 1:
        return "there are no environments on these nodes; create one with ansible-playbook site.yml"
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER) - 1)]
    return "\n".join("  ".join([*map(str.ljust, line, widths), line[-1]]).rstrip() for line in lines)


def find_removable(replies: Mapping[str, Any], name: str) -> list[str]:
    """Return the nodes that have an environment. Raise ValueError if it is in use, or if a node did not reply."""
    silent = [node for node, reply in replies.items() if not isinstance(reply, Mapping) or "environments" not in reply]
    if silent:
        raise ValueError(
            f"{name} was not removed: {', '.join(silent)} did not respond. Check with ./muster ping, or leave these "
            "machines out with --limit"
        )
    nodes, users = [], {}
    for node, reply in replies.items():
        for entry in reply["environments"]:
            if entry["name"] == name:
                nodes.append(node)
                if entry["processes"]:
                    users[node] = entry
    if users:
        node, entry = next(iter(users.items()))
        runs = sorted({printable(run) for user in users.values() for run in user["runs"]})
        reason = f"run {', '.join(runs)}" if runs else f"process {entry['processes'][0]} on {node}"
        remedy = f"stop it: ./muster stop {runs[0]}" if runs else "end that process"
        raise ValueError(
            f"{name} was not removed: it is in use on {', '.join(users)} by {reason}. Wait until it has ended, or "
            f"{remedy}"
        )
    return nodes
