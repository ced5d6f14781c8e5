# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module deepspeed_proof: run the check on the node, and show its progress."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.detached import NOT_IN_CHECK_MODE, run_code

ARGUMENT_SPEC: dict[str, Any] = {
    "directory": {"type": "path", "required": True},
    "key": {"type": "str", "required": True, "no_log": False},
    "version": {"type": "str", "required": True},
    "built": {"type": "list", "elements": "str", "default": []},
}


class ActionModule(ActionBase):
    """Runs the check with the environment's interpreter."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of the check."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return NOT_IN_CHECK_MODE
        directory = args.pop("directory")
        request = {**args, "marker": os.path.join(directory, "installed", "deepspeed.proved")}
        python = os.path.join(directory, "env", "bin", "python")
        return run_code(
            self, task_vars, "deepspeed: verifying the installation", python, "_torch.deepspeed_proof", request
        )
