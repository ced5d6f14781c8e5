# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_stacks: reads the stacks of a node's ranks, or shows the stacks from all nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import locate_ranks
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    activity,
    describe,
    location,
    merge_groups,
    validate_groups,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import NAME, RANK, conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CALL_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._text.missing_reply import describe_missing_reply

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "default": ""},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "results_by_node": {"type": "dict"},
    "rank": {"type": "str", "default": ""},
    "record": {"type": "path", "default": ""},
}
REPLY = {"node": {"name": NAME, "first_rank": RANK, "slots": RANK}, "groups": list}
FILE = "stacks.json"
MAX_REASONS = 3  # number of reasons shown in a message


def node_groups(replies: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Return the nodes that replied, the merged groups of their ranks, and the reasons why other nodes are missing."""
    nodes, groups, missing = [], [], []
    for name, reply in replies.items():
        if not conforms(reply, REPLY):
            missing.append(describe_missing_reply(name, reply))
            continue
        node = {**reply["node"], "name": name}
        nodes.append(node)
        groups += validate_groups(reply["groups"], range(node["first_rank"], node["first_rank"] + node["slots"]))
    nodes.sort(key=lambda node: node["first_rank"])
    return nodes, merge_groups(groups), missing


def format_stacks(groups: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the activity of each group, with its frames, as lines for a terminal."""
    lines = []
    for group in groups:
        lines.append(f"{locate_ranks(group['ranks'], nodes)} {activity(group)}")
        if group["text"]:
            lines.append(f"    {location(group)}: {group['text']}")
        lines += [f"    {frame}" for frame in group["frames"]]
        lines += [f"    worker: {worker}" for worker in group["workers"]]
    return lines


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node, or none if it shows an earlier result."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the stacks on this node, or show the stacks that were read on all nodes."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if args["results_by_node"] is not None:
            return self.show(args)
        request = {
            **{name: args[name] for name in ("run_id", "runs_directory", "user")},
            "operation": "stacks",
            "node": task_vars["inventory_hostname"],
            "read_only": True,
        }
        return call_node(self, "_run.dispatch", request, task_vars, CALL_TIMEOUT)

    def show(self, args: dict[str, Any]) -> dict[str, Any]:
        """Show what the ranks are doing, and write it to the record."""
        display = Display()
        if args["rank"] and not (args["rank"].isascii() and args["rank"].isdigit()):
            raise AnsibleActionFail(f"rank is {ascii(args['rank'])[:60]}: use a number, such as -e rank=3")
        nodes, groups, missing = node_groups(args["results_by_node"])
        if not nodes:
            raise AnsibleActionFail("; ".join(missing[:MAX_REASONS]) or "no node was queried")
        text, culprits = describe(groups, nodes)
        shown = [group for group in groups if not args["rank"] or int(args["rank"]) in group["ranks"]]
        display.display(text or "no rank runs")
        if args["rank"] and not shown:
            display.display(f"rank {args['rank']} is not running, or its node did not reply")
        if shown:
            display.display("\n".join(["", *format_stacks(shown, nodes)]))
        for problem in missing:
            display.display(f"without {problem}")
        result = {"text": text, "awaited_ranks": culprits, "groups": groups, "missing": missing}
        if args["record"] and not self._task.check_mode:
            self.write(Path(args["record"]) / FILE, {"time": time.time(), **result})
        return {"changed": False, **result}

    @staticmethod
    def write(path: Path, document: dict[str, Any]) -> None:
        """Write the stacks to the record. Raise AnsibleActionFail if they cannot be written."""
        try:
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise AnsibleActionFail(f"cannot write {path}: {error.strerror}") from error
