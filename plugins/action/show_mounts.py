# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module show_mounts: shows which data mounts each node has. Opens no connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import classify_failure
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable, single_line

ARGUMENT_SPEC = {
    "facts": {"type": "dict", "required": True},
}
STATES = {
    "ok": "mounted",
    "stale": "DEAD",
    "hangs": "HANGS",
    "unreadable": "NOT READABLE",
    "missing": "NOT MOUNTED",
}
UNLIMITED = 2**48  # bytes; a bucket reports a size in petabytes
MAX_SOURCE_WIDTH = 60  # characters


def format_free(mount: Mapping[str, Any]) -> str:
    """Format a mount's free space, or return "-" if it is unknown or unlimited."""
    free = mount.get("free_bytes")
    if not isinstance(free, int) or free >= UNLIMITED:
        return "-"
    return f"{free / 2**30:.1f} GiB" if free < 2**40 else f"{free / 2**40:.1f} TiB"


def build_rows(name: str, reply: Any) -> list[dict[str, Any]]:
    """Return one row per mount of a node, or one row without a mount if there are none or the node did not reply."""
    row: dict[str, Any] = {"node": name, "mount": "", "source": "", "state": "", "free": "", "message": ""}
    if not isinstance(reply, Mapping) or reply.get("facts") is None:
        message = reply.get("msg") if isinstance(reply, Mapping) else None
        return [{**row, "state": "NO ANSWER", "message": classify_failure(name, str(message or "not queried")).problem}]
    mounts = reply["facts"]["storage"]["mounts"]
    if not mounts:
        return [{**row, "state": "no mounts"}]
    return [
        {
            **row,
            "mount": mount["point"],
            "source": f"{mount['type']} {mount['source']}".strip(),
            "state": STATES[mount["state"]],
            "free": format_free(mount),
            "message": mount["error"],
        }
        for mount in sorted(mounts, key=lambda mount: mount["point"])
    ]


def render(rows: list[dict[str, Any]]) -> str:
    """Render the table, followed by the number of usable mounts."""
    lines = [("NODE", "MOUNT", "STATE", "FREE", "SOURCE")]
    for row in rows:
        state = f"{row['state']}: {row['message']}" if row["message"] else row["state"]
        source = single_line(row["source"], MAX_SOURCE_WIDTH)
        lines.append((row["node"], printable(row["mount"]) or "-", single_line(state, 90), row["free"] or "-", source))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]).rstrip()
        for line in lines
    ]
    mounts = [row for row in rows if row["mount"]]
    usable = sum(row["state"] == STATES["ok"] for row in mounts)
    return "\n".join([*table, f"{usable} of {len(mounts)} mounts can be used"])


class ActionModule(ActionBase):
    """Action plugin that shows nodes' mounts from previously gathered facts."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show a table of the mounts and return its rows."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        rows = [row for name, reply in args["facts"].items() for row in build_rows(name, reply)]
        Display().display(render(rows))
        return {"changed": False, "mounts": rows}
