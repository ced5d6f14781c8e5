# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module choose_outputs: chooses which files to fetch from which nodes. Connects to no node."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate
from ansible_collections.muster.training.plugins.plugin_utils._record.output_choice import (
    OutputFile,
    deduplicate,
    find_missing,
    names_to_compare,
    parse_outputs,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

ARGUMENT_SPEC = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "listed": {"type": "dict", "required": True},
    "compared": {"type": "dict"},
    "directory": {"type": "path", "required": True},
    "confirm": {"type": "bool", "default": False},
}
CONFIRM_SIZE = 10**9  # number of bytes to fetch without asking for confirmation
MAX_UNLISTED = 100  # number of file names that a node may list
MAX_SUGGESTED = 5
MAX_NAME = 100  # characters


def count_files(count: int) -> str:
    """Format a number of files."""
    return f"{count} file{'' if count == 1 else 's'}"


def summarize(files: Mapping[str, list[OutputFile]], count: int, size: int, duplicates: int, target: str) -> str:
    """Return a summary of the files to fetch."""
    all_files = [output for outputs in files.values() for output in outputs]
    present, present_size = len(all_files) - count, sum(output.size for output in all_files) - size
    lines = [f"the run's outputs: {count_files(len(all_files))}, {(size + present_size) / 1e6:.0f} MB"]
    if duplicates:
        lines.append(f"  identical on several nodes, fetched once: {count_files(duplicates)}")
    if present or present_size:
        lines.append(f"  already here: {count_files(present)}, {present_size / 1e6:.0f} MB")
    lines.append(f"  to fetch: {count_files(count)}, {size / 1e6:.0f} MB, into {target}")
    return "\n".join(lines)


def describe_unlisted(replies: Mapping[str, Any]) -> list[str]:
    """Return lines about files in the working directory that the job may have written but that are not fetched."""
    counts: Counter[str] = Counter()
    for reply in replies.values():
        entries = reply.get("unlisted") if isinstance(reply, Mapping) else None
        for name, count in list(entries.items())[:MAX_UNLISTED] if isinstance(entries, Mapping) else ():
            if isinstance(name, str) and "{" not in name and is_count(count):
                counts[single_line(name, MAX_NAME)] += count
    if not counts:
        return []
    texts = [f"{name} ({count_files(count)})" for name, count in sorted(counts.items())]
    names = json.dumps({"launch_outputs": sorted(counts)[:MAX_SUGGESTED]}, ensure_ascii=False)
    return [
        f"  not fetched (files in the working directory that the job may have written): {abbreviate(texts)}",
        f"  to fetch them, add -e {shlex.quote(names)}; for later runs, set outputs in the job file",
    ]


def is_count(value: object) -> bool:
    """Return whether a value from a node is a plausible number of files."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9


class ActionModule(ActionBase):
    """Action plugin that reads one directory on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the files to compare or to fetch."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display = Display()
        files: dict[str, list[OutputFile]] = {}
        for name in args["nodes"]:
            reply = args["listed"].get(name)
            entries = reply.get("files") if isinstance(reply, Mapping) else None
            files[name], refused = parse_outputs(entries)
            if args["compared"] is None:
                continue
            if refused:
                display.warning(
                    f"{name} has files that are not fetched because their paths point outside the directory: "
                    f"{abbreviate(refused)}"
                )
            if isinstance(reply, Mapping) and reply.get("incomplete"):
                display.warning(
                    f"{name} has files that cannot be listed and are not fetched: their names are not UTF-8, or there "
                    "are too many"
                )
        if args["compared"] is None:
            return {"changed": False, "compare": names_to_compare(files)}
        missing = [name for name in args["nodes"] if name not in args["listed"]]
        if missing:
            display.warning(f"{abbreviate(missing)}: not in this inventory, so their output files are not fetched")
        hashes = {
            name: reply["hashes"]
            for name, reply in args["compared"].items()
            if isinstance(reply, Mapping) and isinstance(reply.get("hashes"), Mapping)
        }
        unique = deduplicate(files, hashes)
        directories = {name: Path(args["directory"], f"node{rank}") for rank, name in enumerate(args["nodes"])}
        pending = [file for name, outputs in unique.items() for file in find_missing(directories[name], outputs)]
        size = sum(file.output.size - file.fetched for file in pending)
        duplicates = sum(map(len, files.values())) - sum(map(len, unique.values()))
        display.display(summarize(unique, len(pending), size, duplicates, args["directory"]))
        for line in describe_unlisted({name: args["listed"].get(name) for name in args["nodes"]}):
            display.display(line)
        return {
            "changed": False,
            "selected": {
                name: {"directory": str(directories[name]), "files": [output._asdict() for output in outputs]}
                for name, outputs in unique.items()
            },
            "count": len(pending),
            "size": size,
            "needs_confirmation": size > CONFIRM_SIZE and not args["confirm"],
        }
