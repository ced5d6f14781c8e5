# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module reach_nodes: log in to the nodes and report each problem once for all nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, render_findings
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import connection_findings
from ansible_collections.muster.training.plugins.plugin_utils._cluster.training_group import group_members
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    reject_unused_options,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.ssh_reachability import unreachable_nodes
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "nodes": {"type": "list", "elements": "str"},
    "group": {"type": "str"},
    "need": {"type": "str", "choices": ["one", "all"], "default": "one"},
    "root": {"type": "bool", "default": False},
}
CONSTRAINTS = {"mutually_exclusive": [("nodes", "group")], "required_one_of": [("nodes", "group")]}
DEFAULT_FORKS = 5  # Ansible's default
MAX_NAMES = 8


def shorten_names(finding: Finding) -> Finding:
    """Return the finding with the names of the first nodes and the number of remaining nodes."""
    if len(finding.nodes) <= MAX_NAMES:
        return finding
    return replace(finding, nodes=(*finding.nodes[:MAX_NAMES], f"and {len(finding.nodes) - MAX_NAMES} more"))


def verdict(unreached: list[str], nodes: list[str], root: bool) -> str:
    """Describe how many nodes cannot be reached or used."""
    state = "be used" if root else "be reached"
    if len(unreached) == len(nodes):
        return f"{unreached[0]} cannot {state}" if len(nodes) == 1 else f"none of the {len(nodes)} nodes can {state}"
    return f"{len(unreached)} of {len(nodes)} nodes cannot {state}, but all are needed"


def exclusion_hint(unreached: list[str], nodes: list[str]) -> str:
    """Return the option for continuing without the unreachable nodes, or "" if no nodes would remain."""
    if len(unreached) == len(nodes):
        return ""
    exclusions = ":".join(f"!{name}" for name in unreached[:MAX_NAMES])
    return f"Fix this, or exclude nodes with --limit 'all:{exclusions}'"


class ActionModule(ActionBase):
    """Action plugin that runs the command `true` on several nodes, in one task."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail if too few nodes can be reached."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, **CONSTRAINTS)
        reject_unused_options(task_vars)
        nodes = args["nodes"] if args["group"] is None else group_members(args["group"], task_vars["groups"])
        unreached = unreachable_nodes(
            self,
            nodes,
            task_vars["hostvars"],
            become=args["root"],
            all_required=args["need"] == "all",
            parallel_logins=int(task_vars.get("ansible_forks") or DEFAULT_FORKS),
        )
        if not unreached:
            return {"changed": False}
        Display().display(render_findings(shorten_names(finding) for finding in connection_findings(unreached)))
        # put it on its own line: YAML output would double each quote, so it could not be pasted
        if hint := exclusion_hint(list(unreached), nodes):
            Display().display(hint)
        raise UserError(verdict(list(unreached), nodes, args["root"]))
