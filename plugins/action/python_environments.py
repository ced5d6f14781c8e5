# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module python_environments."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PACK_CALL_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node

ARGUMENT_SPEC = {
    "directory": {"type": "str", "required": True},
    "remove": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """List this node's environments, and remove the one that `remove` names, if any."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, request = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        request["check"] = self._task.check_mode
        reply = call_node(self, "_python_env.environments", request, task_vars, timeout=PACK_CALL_TIMEOUT)
        error = reply.pop("error", "")
        return {**reply, "failed": True, "msg": f"{request['remove']} was not removed: {error}"} if error else reply
