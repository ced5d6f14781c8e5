# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the run that a command without a run name refers to: the active run, otherwise the last one."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import LATEST
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

MAX_ASKED = 8  # number of newest open runs whose nodes are queried


class OpenRun(NamedTuple):
    """A run whose end is not in its record: it is active, or it ended while it was not being watched."""

    run_id: str
    names: list[str]  # names of its nodes that are in the inventory
    opened: float

    can_move: bool = False  # whether a node other than the first may lead it

    @property
    def asked(self) -> list[str]:
        """The nodes that know whether the run is active: rank 0's node, or all nodes that may be leading it now."""
        return self.names if self.can_move else self.names[:1]


class ChosenRun(NamedTuple):
    """The run that a command refers to."""

    run_id: str  # empty if there is no record
    is_active: bool  # unless its record says that it has ended
    note: str  # message for the user, or empty


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a record's file; empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_open(record: Path) -> bool:
    """Return whether a record lacks the end of the run."""
    return (record / "token").exists() and not (record / "result.json").exists()


def open_runs(directory: Path, members: Collection[str]) -> list[OpenRun]:
    """Return the open runs that have nodes among the group's members, newest first."""
    runs = []
    for token in directory.glob("*/token"):
        record = token.parent
        if record.is_symlink() or not is_open(record):  # `latest` is a link
            continue
        plan = read_object(record / "plan.json")
        names = [str(node.get("name")) for node in plan.get("nodes", []) if node.get("name") in members]
        if names:
            opened = (record / "plan.json").stat().st_mtime
            runs.append(OpenRun(record.name, names, opened, can_move="restart" in plan and can_succeed(plan)))
    return sorted(runs, key=lambda run: run.opened, reverse=True)


def last_launched(directory: Path) -> str:
    """Return the run that was launched last, or an empty string if it has no record."""
    link = directory / LATEST
    return link.resolve().name if (link / "plan.json").exists() else ""


def nodes_to_query(runs: Sequence[OpenRun], last: str) -> list[str]:
    """Return the nodes to ask which of the open runs are active, or none if it does not matter.

    It is irrelevant for a single run that was launched last: the command refers to it in any case.

    last: from last_launched().
    """
    if [run.run_id for run in runs] == [last]:
        return []
    return list(dict.fromkeys(name for run in runs[:MAX_ASKED] for name in run.asked))


def find_open_runs(runs: Sequence[OpenRun], replies: Mapping[str, Any]) -> list[OpenRun]:
    """Return the runs that have not ended according to the node_runs replies, by node; the state of the others is
    unknown.
    """
    active = {
        node: set(reply["active"])
        for node, reply in replies.items()
        if isinstance(reply, Mapping) and "active" in reply
    }
    return [run for run in runs if any(name not in active or run.run_id in active[name] for name in run.asked)]


def describe_end(record: Path) -> str:
    """Describe how and when a run ended: "ended (failed) at 2026-11-27 10:43"; "has ended" if unknown."""
    result = read_object(record / "result.json")
    ended = result.get("ended")
    state = f" ({printable(str(result['state']))[:40]})" if "state" in result else ""
    if not isinstance(ended, (int, float)):
        return f"has ended{state}"
    return f"ended{state} at {time.strftime('%Y-%m-%d %H:%M', time.localtime(ended))}"


def choose_run(directory: Path, members: Collection[str], replies: Mapping[str, Any], stop: bool) -> ChosenRun:
    """Return the newest active run, otherwise the run that was launched last.

    Args:
        directory: that of the records.
        members: hosts of the inventory group.
        replies: those of node_runs, by node in nodes_to_query().
        stop: whether the command stops the run.
    """
    known_runs = open_runs(directory, members)
    runs = find_open_runs(known_runs, replies)
    last = last_launched(directory)
    if not runs:
        # a run from another inventory, or one that ended unwatched: its nodes know how it ended
        if not last or is_open(directory / last):
            return ChosenRun(last, bool(last), "")
        end = describe_end(directory / last)
        text = f"nothing to stop: {last} {end}" if stop else f"no run is active; the last one, {last}, {end}"
        return ChosenRun(last, False, text)
    chosen, notes = runs[0], []
    if last and last != chosen.run_id and (not is_open(directory / last) or last in {run.run_id for run in known_runs}):
        notes.append(f"run {chosen.run_id} is active; {last}, launched later, {describe_end(directory / last)}")
    if runs[1:]:
        others = ", ".join(f"{run.run_id} on {format_list(run.names)}" for run in runs[1 : MAX_ASKED + 1])
        more = f" and {len(runs) - 1 - MAX_ASKED} more" if len(runs) - 1 > MAX_ASKED else ""
        notes.append(f"this is about {chosen.run_id}; also active: {others}{more}")
    return ChosenRun(chosen.run_id, True, "\n".join(notes))
