# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module bad_nodes: the machines that must not be used. Connects to no node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import (
    BadNode,
    BadNodesError,
    add_entry,
    change_entries,
    describe_entry,
    describe_machine,
    file_of,
    make_entry,
    matches,
    read_entries,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.machine_identity import summarize_identity

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["listed", "added", "forgiven"], "required": True},
    "node": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "facts": {"type": "dict"},
    "group": {"type": "str", "default": "training"},
}


def render(entries: list[BadNode]) -> str:
    """Render the entries as a table."""
    if not entries:
        return "no machines are recorded as bad"
    rows = [("NODE", "MACHINE", "REASON")]
    rows += [(entry["node"], describe_machine(entry), describe_entry(entry)) for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[2]]) for row in rows)


def identity_of(reply: Any) -> dict[str, Any]:
    """Return a node's identity from the registered result of node_facts, or {} if the node was not read."""
    facts = reply.get("facts") if isinstance(reply, Mapping) else None
    return summarize_identity(facts.get("health")) if isinstance(facts, Mapping) else {}


def exclude_node(entries: list[BadNode], node: str, identity: Mapping[str, Any]) -> list[BadNode]:
    """Return the entries without those for a node: the entries with its name, or with another name for the same
    machine.
    """
    return [entry for entry in entries if entry["node"] != node and not (identity and matches(entry, node, identity))]


class ActionModule(ActionBase):
    """Action plugin that changes only bad-nodes.json."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """List, add or forgive bad nodes."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC,
            required_if=[("state", "added", ("node", "reason")), ("state", "forgiven", ("node",))],
        )
        path = file_of(task_vars, args["group"])
        try:
            before = read_entries(path)
            if args["state"] == "listed":
                Display().display(render(before))
                return {"changed": False, "file": str(path), "nodes": before}
            after = self.changed_entries(before, args)
            if not self._task.check_mode:
                after = change_entries(path, lambda entries: self.changed_entries(entries, args))
        except BadNodesError as error:
            raise AnsibleActionFail(str(error)) from None
        return {"changed": before != after, "file": str(path), "nodes": after}

    @staticmethod
    def changed_entries(entries: list[BadNode], args: Mapping[str, Any]) -> list[BadNode]:
        """Return the entries after applying the requested change."""
        node, identity = args["node"], identity_of(args["facts"])
        if args["state"] == "added":
            return add_entry(entries, make_entry(node, args["reason"], "", identity, []))
        remaining = exclude_node(entries, node, identity)
        if len(remaining) == len(entries):
            names = ", ".join(dict.fromkeys(entry["node"] for entry in entries)) or "none"
            raise AnsibleActionFail(
                adapt_commands(
                    f"{ascii(node)[:80]} is not recorded as bad; recorded: {names} (ansible-playbook forgive.yml)"
                )
            )
        return remaining
