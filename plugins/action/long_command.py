# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module long_command: start a long-running step and show its progress."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.detached import NOT_IN_CHECK_MODE, run_command

ARGUMENT_SPEC = {
    "description": {"type": "str", "required": True},
    "argv": {"type": "list", "elements": "str", "required": True},
    "chdir": {"type": "path", "default": ""},
    "stdin": {"type": "str", "default": "", "no_log": True},
    "follow": {"type": "bool", "default": True},
    "show_every": {"type": "int", "default": 10},
}


class ActionModule(ActionBase):
    """Starts a command on the node and polls it until it ends."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of the command."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return NOT_IN_CHECK_MODE
        return run_command(self, task_vars, **args)
