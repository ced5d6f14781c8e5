# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module long_command: shows that a long step lives."""

from __future__ import annotations

import json
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._on_node import call_node

ARGUMENT_SPEC = {
    "what": {"type": "str", "required": True},
    "argv": {"type": "list", "elements": "str", "required": True},
    "chdir": {"type": "path", "default": ""},
    "show_every": {"type": "int", "default": 10},
}
RESULT_MARK = "MUSTER-RESULT "
LAST_WORDS = 3000  # characters of the output of a command that failed


def outcome(rc: int, output: str, lost: bool) -> dict[str, Any]:
    """What the task returns. A command may end with a line MUSTER-RESULT {"changed": ..., ...}."""
    lines = output.splitlines()
    said: dict[str, Any] = {}
    for line in reversed(lines):
        if line.startswith(RESULT_MARK):
            said = json.loads(line[len(RESULT_MARK) :])
            break
    shown = [line for line in lines if not line.startswith(RESULT_MARK)]
    result = {"changed": said.pop("changed", True), "rc": rc, "stdout_lines": shown, "answer": said}
    if rc or lost:
        why = "it was ended by a signal, or the machine was restarted" if lost else f"exit code {rc}"
        text = said.get("fault") or f"{why}: " + "\n".join(shown)[-LAST_WORDS:]
        return {"changed": True, "failed": True, "rc": rc, "msg": text}
    return result


class ActionModule(ActionBase):
    """Starts a command on the node and asks for it until it has ended."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return how the command ended."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True, "skipped": True, "msg": "not run in check mode"}
        environment: dict[str, str] = {}
        for part in self._task.environment or []:
            environment.update({str(k): str(v) for k, v in (self._templar.template(part) or {}).items()})
        request = {"argv": args["argv"], "chdir": args["chdir"], "environment": environment, "patience": 2.0}
        name = self._task.delegate_to or task_vars["inventory_hostname"]
        started = shown = time.monotonic()
        answer = call_node(self, ["_long_command"], {**request, "start": True}, task_vars)
        if answer.get("followed"):
            Display().display(f"{name}: {args['what']}: runs already, and is followed to its end")
        while not answer["ended"]:
            now = time.monotonic()
            if now - shown >= args["show_every"]:
                shown = now
                last = f": {answer['last_line'][:120]}" if answer["last_line"] else ""
                Display().display(f"{name}: {args['what']} ({duration(now - started)}){last}")
            answer = call_node(self, ["_long_command"], {**request, "start": False, "patience": 5.0}, task_vars)
        result = outcome(answer["rc"], answer["output"], answer["lost"])
        if result.get("failed"):
            result["msg"] = f"{name}: {args['what']}: {result['msg']}"
        return result
