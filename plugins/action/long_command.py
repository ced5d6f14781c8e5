# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module long_command: shows that a long step lives."""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._long_command import RESULT_MARK, without_credentials
from ansible_collections.muster.training.plugins.module_utils._verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._on_node import call_node

ARGUMENT_SPEC = {
    "what": {"type": "str", "required": True},
    "argv": {"type": "list", "elements": "str", "required": True},
    "chdir": {"type": "path", "default": ""},
    "stdin": {"type": "str", "default": "", "no_log": True},
    "follow": {"type": "bool", "default": True},
    "show_every": {"type": "int", "default": 10},
}
LAST_LINES = 40  # of the output of a command that failed
LONGEST_LINE = 1000  # characters
NOT_FOR_A_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t\x20-\x7e\u00a0-\U0010ffff]")


def last_lines(lines: list[str]) -> list[str]:
    """The last lines of a program as it would have left them on a screen, without what steers a terminal."""
    shown = [NOT_FOR_A_TERMINAL.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in lines]
    return [line[-LONGEST_LINE:] for line in shown if line][-LAST_LINES:]


def outcome(rc: int, output: str, lost: bool, log: str = "") -> dict[str, Any]:
    """What the task returns.

    A command may end with a line MUSTER-RESULT {"changed": ..., ...}, or {"fault": "in words"} if it fails. With
    "output_tells": true beside the fault its last lines are shown, as they are where there is no fault.
    """
    lines = output.split("\n")
    if not lines[-1]:
        lines.pop()
    said: dict[str, Any] = {}
    for line in reversed(lines):
        if line.startswith(RESULT_MARK):
            said = json.loads(line[len(RESULT_MARK) :])
            break
    shown = [line for line in lines if not line.startswith(RESULT_MARK)]
    result = {"changed": said.pop("changed", True), "rc": rc, "stdout_lines": shown, "answer": said}
    if rc or lost:
        why = "it was ended by a signal, or the machine was restarted" if lost else f"exit code {rc}"
        text = [without_credentials(said.get("fault") or why)]
        told = last_lines(shown) if said.get("output_tells", "fault" not in said) else []
        if told:
            text = [f"{text[0]}. The last lines of its output:", *(f"  {line}" for line in told)]
            text += [f"All of its output is on that node, in {log}"] if log else []
        return {"changed": True, "failed": True, "rc": rc, "msg": "\n".join(text)}
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
        request = {name: args[name] for name in ("what", "argv", "chdir", "stdin")}
        request.update(environment=environment, patience=2.0, run="" if args["follow"] else secrets.token_hex(8))
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
        result = outcome(answer["rc"], answer["output"], answer["lost"], answer["log"])
        if result.get("failed"):
            result["msg"] = f"{name}: {args['what']}: {result['msg']}"
        elif result["answer"].get("notice"):
            Display().display(f"{name}: {args['what']}: {result['answer']['notice']}")
        return result
