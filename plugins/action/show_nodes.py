# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module show_nodes: shows which machines are reachable, and their GPUs. Opens no
connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import render_table
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import (
    classify_failure,
    connection_findings,
)
from ansible_collections.muster.training.plugins.plugin_utils._inventory_sources import reject_unread_sources
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

ARGUMENT_SPEC = {
    "facts": {"type": "dict", "required": True},
}
SMI_MESSAGES = {
    "hangs": "{tool} does not respond",
    "mismatch": "driver and library versions differ",
    "no-driver": "no driver is loaded",
    "no-gpu": "the driver does not detect any GPUs",
    "gpu-lost": "a GPU is lost",
    "failed": "{tool} fails",
}
MAX_COLUMN_WIDTH = 90  # maximum number of characters in the last column


def describe_gpus(gpus: Mapping[str, Any]) -> str:
    """Describe a node's GPUs: number, model, memory, users and problems."""
    models = Counter(
        device["name"] + (f" {round(device['memory_mib'] / 1024)} GiB" if device["memory_mib"] else "")
        for device in gpus["devices"]
    )
    parts = [f"{number} x {model}" for model, number in models.items()]
    if not parts and gpus["count"]:
        parts = [f"{gpus['count']} (without {vendor_of(gpus).tool})"]
    smi_problem = SMI_MESSAGES.get(gpus["smi"]["state"])
    if smi_problem is None and gpus["pci"] > gpus["count"]:
        smi_problem = SMI_MESSAGES["no-driver"]
    smi_problem = smi_problem and smi_problem.format(tool=vendor_of(gpus).tool)
    gpu_errors = [f"GPU {device['index']}: {device['error']}" for device in gpus["devices"] if device["error"]]
    users = sorted({process["user"] or "another user" for process in gpus["processes"]})
    parts += [f"! {text}" for text in [smi_problem, *gpu_errors] if text]
    parts += [f"in use by {', '.join(users)}"] if users else []
    return "; ".join(parts) or "none"


def is_unreached(reply: Any) -> bool:
    """Return whether a machine was queried but did not report its GPUs."""
    return isinstance(reply, Mapping) and reply.get("facts") is None and bool(reply.get("msg"))


def build_row(name: str, address: str, reply: Any) -> dict[str, Any]:
    """Return the row for one machine."""
    row: dict[str, Any] = {"node": name, "address": address, "reachable": False, "gpu_count": 0}
    row.update(dict.fromkeys(("driver", "gpus", "message"), ""))
    if not isinstance(reply, Mapping) or reply.get("facts") is None:
        message = reply.get("msg") if isinstance(reply, Mapping) else None
        return {**row, "message": classify_failure(name, str(message or "not queried")).problem}
    gpus = reply["facts"]["gpus"]
    driver = gpus["driver"]["loaded"] or next((device["driver"] for device in gpus["devices"]), "")
    return {**row, "reachable": True, "gpu_count": gpus["count"], "driver": driver, "gpus": describe_gpus(gpus)}


def render(rows: list[dict[str, Any]]) -> str:
    """Render the table with its totals."""
    lines = [("NODE", "ADDRESS", "ANSWERS", "DRIVER", "GPUS")]
    for row in rows:
        reachable = "yes" if row["reachable"] else "NO"
        detail = single_line(row["gpus"] or row["message"], MAX_COLUMN_WIDTH)
        lines.append((row["node"], row["address"], reachable, row["driver"] or "-", detail))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]).rstrip()
        for line in lines
    ]
    reached_count, gpus = sum(row["reachable"] for row in rows), sum(row["gpu_count"] for row in rows)
    machines = f"machine{'' if len(rows) == 1 else 's'}"
    total = f"{reached_count} of {len(rows)} {machines} respond{'s' if reached_count == 1 else ''}"
    return "\n".join([*table, f"{total}, {gpus} GPU{'' if gpus == 1 else 's'}"])


class ActionModule(ActionBase):
    """Action plugin that shows machines and their GPUs from previously gathered facts."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the machines in one table and return the table."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        rows = []
        for name, reply in args["facts"].items():
            variables = task_vars["hostvars"].get(name, {})
            rows.append(
                build_row(name, str(variables.get("node_address") or variables.get("ansible_host") or ""), reply)
            )
        Display().display(render(rows))
        unreached = {name: str(reply["msg"]) for name, reply in args["facts"].items() if is_unreached(reply)}
        if unreached:
            Display().display(render_table(connection_findings(unreached)))
        reject_unread_sources(task_vars["hostvars"])  # the table may lack machines
        missing = [row["node"] for row in rows if not row["reachable"]]
        return {"changed": False, "nodes": rows, "missing": missing}
