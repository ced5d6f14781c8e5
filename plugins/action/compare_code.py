# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module compare_code. Connects to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._rank_table import some
from ansible_collections.muster.training.plugins.plugin_utils._checks.code import difference
from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import answers
from ansible_collections.muster.training.plugins.plugin_utils._checks.start_conditions import runs_at
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "facts": {"type": "dict", "default": {}},
    "facts_from": {"type": "str", "default": ""},
    "code": {"type": "dict", "required": True},
    "wanted": {"type": "str", "choices": ["synced", "as_is"], "default": "synced"},
    "busy_is_right": {"type": "bool", "default": False},
}


def why_left(nodes: list[dict[str, Any]], answered: Mapping[str, Any], wanted: str, busy_is_right: bool) -> str:
    """Why differing code is not copied now, as code_left of launch_plan; empty if it is copied.

    answered: the facts of the nodes that have answered. A running job keeps its code, and a run that cannot start needs
    none.
    """
    if wanted == "as_is":
        return "as_is"
    busy = any(runs_at(node["address"], answered[node["name"]]["runs"]) for node in nodes if node["name"] in answered)
    return "refused" if len(answered) < len(nodes) or (busy and not busy_is_right) else ""


def in_words(code: Mapping[str, Any], differing: Mapping[str, Mapping[str, Any]]) -> str:
    """What is about to be copied, in one line for each difference."""
    groups: dict[str, list[str]] = {}
    for name, part in differing.items():
        groups.setdefault(difference(part), []).append(name)
    lines = [f"  {some(names)}: {printable(words)}" for words, names in groups.items()]
    shown = lines if len(lines) <= 3 else [*lines[:2], f"  and {len(lines) - 2} more"]
    return "\n".join([f"bringing the code of {code['source']}", *shown])


class ActionModule(ActionBase):
    """Pure: compares the code here with the nodes' facts about their copies."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return whether the code must be copied."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        given = answers(args, task_vars.get("hostvars"))
        answered = {name: one["facts"] for name, one in given.items() if isinstance(one, Mapping) and one.get("facts")}
        parts = {name: facts.get("code") for name, facts in answered.items()}
        differing = {name: part for name, part in parts.items() if part and not part["same"]}
        left = why_left(args["nodes"], answered, args["wanted"], args["busy_is_right"])
        if not left and self._task.check_mode:
            left = "later"
        bring = bool(differing) and not left
        if bring:
            Display().display(in_words(args["code"], differing))
        return {"changed": left == "later" and bool(differing), "bring": bring, "left": left, "differing": [*differing]}
