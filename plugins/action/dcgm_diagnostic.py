# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module dcgm_diagnostic."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.module_utils._health.dcgm import TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node

ARGUMENT_SPEC: dict[str, Any] = {}
CALL_GRACE_PERIOD = 30.0  # seconds allowed beyond the diagnostic's own timeout


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the results of the diagnostics."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        return call_node(self, "_health.dcgm", {}, task_vars, TIMEOUT + CALL_GRACE_PERIOD)
