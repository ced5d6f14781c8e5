# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module munge_key.

The key is sent over standard input, so that it is never stored in a file on this machine.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node

ARGUMENT_SPEC: dict[str, Any] = {"key": {"type": "str", "default": "", "no_log": True}}


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the node's key or, if a key is given, install it and return whether this changed the node."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        request = {"key": args["key"], "check": self._task.check_mode}
        return {"changed": False, **call_node(self, "_slurm.munge_key", request, task_vars)}
