# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module choose_outputs: which files to fetch from which node. Connects to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._rank_table import some
from ansible_collections.muster.training.plugins.plugin_utils._record.output_choice import (
    Output,
    each_once,
    missing,
    outputs_of,
    to_compare,
)

ARGUMENT_SPEC = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "told": {"type": "dict", "required": True},
    "compared": {"type": "dict"},
    "directory": {"type": "path", "required": True},
    "confirm": {"type": "bool", "default": False},
}
UNASKED = 10**9  # bytes to fetch without confirmation


def number_of(count: int) -> str:
    """A number of files in words."""
    return f"{count} file{'' if count == 1 else 's'}"


def in_words(wanted: Mapping[str, list[Output]], count: int, size: int, twice: int, target: str) -> str:
    """The files to fetch, in words."""
    every = [output for outputs in wanted.values() for output in outputs]
    here, bytes_here = len(every) - count, sum(output.size for output in every) - size
    lines = [f"outputs of the run: {number_of(len(every))}, {(size + bytes_here) / 1e6:.0f} MB"]
    if twice:
        lines.append(f"  identical on several nodes, fetched once: {number_of(twice)}")
    if here or bytes_here:
        lines.append(f"  already here: {number_of(here)}, {bytes_here / 1e6:.0f} MB")
    lines.append(f"  to fetch: {number_of(count)}, {size / 1e6:.0f} MB, into {target}")
    return "\n".join(lines)


class ActionModule(ActionBase):
    """Reads one directory on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return which files to compare, or which to fetch."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display = Display()
        files: dict[str, list[Output]] = {}
        for name in args["nodes"]:
            answer = args["told"].get(name)
            told = answer.get("files") if isinstance(answer, Mapping) else None
            files[name], refused = outputs_of(told)
            if args["compared"] is None:
                continue
            if refused:
                display.warning(
                    f"{name} has files that are not fetched because their names lead outside the directory: "
                    f"{some(refused)}"
                )
            if isinstance(answer, Mapping) and answer.get("more"):
                display.warning(
                    f"{name} has files that cannot be listed and are not fetched: their names are not UTF-8, or there "
                    "are too many"
                )
        if args["compared"] is None:
            return {"changed": False, "compare": to_compare(files)}
        away = [name for name in args["nodes"] if name not in args["told"]]
        if away:
            display.warning(f"{some(away)}: not in this inventory, so what the job wrote there is not fetched")
        hashes = {
            name: answer["hashes"]
            for name, answer in args["compared"].items()
            if isinstance(answer, Mapping) and isinstance(answer.get("hashes"), Mapping)
        }
        wanted = each_once(files, hashes)
        directories = {name: Path(args["directory"], f"node{rank}") for rank, name in enumerate(args["nodes"])}
        left = [one for name, outputs in wanted.items() for one in missing(directories[name], outputs)]
        size = sum(one.output.size - one.have for one in left)
        twice = sum(map(len, files.values())) - sum(map(len, wanted.values()))
        display.display(in_words(wanted, len(left), size, twice, args["directory"]))
        return {
            "changed": False,
            "wanted": {
                name: {"directory": str(directories[name]), "files": [output._asdict() for output in outputs]}
                for name, outputs in wanted.items()
            },
            "count": len(left),
            "size": size,
            "ask": size > UNASKED and not args["confirm"],
        }
