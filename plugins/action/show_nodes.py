# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module show_nodes: which machines answer, and their GPUs. Connects to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import render_table
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import connection_findings, trouble_of
from ansible_collections.muster.training.plugins.plugin_utils._inventory_sources import refuse_unread_sources
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

ARGUMENT_SPEC = {
    "facts": {"type": "dict", "required": True},
}
SMI_WORDS = {
    "hangs": "nvidia-smi does not answer",
    "mismatch": "driver and library versions differ",
    "no-driver": "no driver is loaded",
    "no-gpu": "the driver finds no GPU",
    "gpu-lost": "a GPU is lost",
    "failed": "nvidia-smi fails",
}
WIDEST = 90  # characters of the last column


def gpu_words(gpus: Mapping[str, Any]) -> str:
    """The GPUs of a node: number, model and memory, who uses them, or what is wrong."""
    models = Counter(
        device["name"] + (f" {round(device['memory_mib'] / 1024)} GiB" if device["memory_mib"] else "")
        for device in gpus["devices"]
    )
    words = [f"{number} x {model}" for model, number in models.items()]
    if not words and gpus["count"]:
        words = [f"{gpus['count']} (without nvidia-smi)"]
    trouble = SMI_WORDS.get(gpus["smi"]["state"])
    if trouble is None and gpus["pci"] > gpus["count"]:
        trouble = SMI_WORDS["no-driver"]
    faults = [f"GPU {device['index']}: {device['fault']}" for device in gpus["devices"] if device["fault"]]
    busy = sorted({process["user"] or "somebody" for process in gpus["processes"]})
    words += [f"! {text}" for text in [trouble, *faults] if text]
    words += [f"in use by {', '.join(busy)}"] if busy else []
    return "; ".join(words) or "none"


def is_unreached(answer: Any) -> bool:
    """Whether a machine was queried, and did not report its GPUs."""
    return isinstance(answer, Mapping) and answer.get("facts") is None and bool(answer.get("msg"))


def row(name: str, address: str, answer: Any) -> dict[str, Any]:
    """The row of one machine."""
    found: dict[str, Any] = {"node": name, "address": address, "reached": False, "gpu_count": 0}
    found.update(dict.fromkeys(("driver", "gpus", "message"), ""))
    if not isinstance(answer, Mapping) or answer.get("facts") is None:
        message = answer.get("msg") if isinstance(answer, Mapping) else None
        return {**found, "message": trouble_of(name, str(message or "not queried")).found}
    gpus = answer["facts"]["gpus"]
    driver = gpus["driver"]["loaded"] or next((device["driver"] for device in gpus["devices"]), "")
    return {**found, "reached": True, "gpu_count": gpus["count"], "driver": driver, "gpus": gpu_words(gpus)}


def render(rows: list[dict[str, Any]]) -> str:
    """The table and its totals."""
    lines = [("NODE", "ADDRESS", "ANSWERS", "DRIVER", "GPUS")]
    for one in rows:
        answers = "yes" if one["reached"] else "NO"
        last = one_line(one["gpus"] or one["message"], WIDEST)
        lines.append((one["node"], one["address"], answers, one["driver"] or "-", last))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]).rstrip()
        for line in lines
    ]
    reached, gpus = sum(one["reached"] for one in rows), sum(one["gpu_count"] for one in rows)
    total = f"{reached} of {len(rows)} machine{'' if len(rows) == 1 else 's'} answer{'s' if reached == 1 else ''}"
    return "\n".join([*table, f"{total}, {gpus} GPU{'' if gpus == 1 else 's'}"])


class ActionModule(ActionBase):
    """Pure."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the machines in one table and return it."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        rows = []
        for name, answer in args["facts"].items():
            variables = task_vars["hostvars"].get(name, {})
            rows.append(row(name, str(variables.get("node_address") or variables.get("ansible_host") or ""), answer))
        Display().display(render(rows))
        unreached = {name: str(answer["msg"]) for name, answer in args["facts"].items() if is_unreached(answer)}
        if unreached:
            Display().display(render_table(connection_findings(unreached)))
        refuse_unread_sources(task_vars["hostvars"])  # the table may lack machines
        missing = [one["node"] for one in rows if not one["reached"]]
        return {"changed": False, "nodes": rows, "missing": missing}
