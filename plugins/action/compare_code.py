# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module compare_code. Opens no connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.gpu_claims import share_gpus
from ansible_collections.muster.training.plugins.plugin_utils._checks.code import describe_difference
from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import collect_replies
from ansible_collections.muster.training.plugins.plugin_utils._checks.start_conditions import live_run_ids, live_runs
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import parse_gpus
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "facts": {"type": "dict", "default": {}},
    "facts_from": {"type": "str", "default": ""},
    "code": {"type": "dict", "required": True},
    "sync_policy": {"type": "str", "choices": ["synced", "as_is"], "default": "synced"},
    "gpus": {"type": "raw", "default": []},
    "allow_busy": {"type": "bool", "default": False},
}


def find_skip_reason(
    nodes: list[dict[str, Any]],
    facts_by_node: Mapping[str, Any],
    requested: str,
    allow_busy: bool,
    gpus: tuple[int, ...] = (),
) -> str:
    """Return why differing code is not being copied, as launch_plan's code_skip_reason, or "" if it is copied.

    A running job keeps its code, and a run that cannot start needs none. facts_by_node: the facts of the nodes that
    have replied.
    gpus: those of the job; a run on other GPUs continues.
    """
    if requested == "as_is":
        return "as_is"
    replies = [(node["address"], facts_by_node[node["name"]]) for node in nodes if node["name"] in facts_by_node]
    busy = any(live_run_ids(address, facts["runs"], gpus) for address, facts in replies)
    if len(replies) < len(nodes) or (busy and not allow_busy):
        return "refused"
    return "in_use" if any(uses_code(address, facts, gpus) for address, facts in replies) else ""


def uses_code(address: str, facts: Mapping[str, Any], gpus: tuple[int, ...]) -> bool:
    """Return whether a run on other GPUs of a node is using the code directory."""
    code = (facts.get("code") or {}).get("path") or ""
    return any(
        not share_gpus(run["gpus"], gpus) and f"{run['working_directory']}/".startswith(f"{code}/")
        for run in live_runs(address, facts["runs"])
        if code and run.get("gpus")
    )


def render_differences(code: Mapping[str, Any], differing: Mapping[str, Mapping[str, Any]]) -> str:
    """Render the pending copy, one line for each difference."""
    groups: dict[str, list[str]] = {}
    for name, part in differing.items():
        groups.setdefault(describe_difference(part), []).append(name)
    lines = [f"  {abbreviate(names)}: {printable(text)}" for text, names in groups.items()]
    visible = lines if len(lines) <= 3 else [*lines[:2], f"  and {len(lines) - 2} more"]
    return "\n".join([f"copying the code from {code['source']}", *visible])


class ActionModule(ActionBase):
    """Action plugin that compares the code on this machine with the facts about the nodes' copies."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return whether the code must be copied."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            gpus = parse_gpus(args["gpus"])
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        replies = collect_replies(args, task_vars.get("hostvars"))
        facts_by_node = {
            name: reply["facts"] for name, reply in replies.items() if isinstance(reply, Mapping) and reply.get("facts")
        }
        parts = {name: facts.get("code") for name, facts in facts_by_node.items()}
        differing = {name: part for name, part in parts.items() if part and not part["same"]}
        skip_reason = find_skip_reason(args["nodes"], facts_by_node, args["sync_policy"], args["allow_busy"], gpus)
        if not skip_reason and self._task.check_mode:
            skip_reason = "later"
        must_copy = bool(differing) and not skip_reason
        if must_copy:
            Display().display(render_differences(args["code"], differing))
        return {
            "changed": skip_reason == "later" and bool(differing),
            "must_copy": must_copy,
            "reason_not_copied": skip_reason,
            "differing": [*differing],
        }
