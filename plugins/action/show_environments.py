# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module show_environments: shows a table of all environments. Connects to no node."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._project.environment_table import (
    find_removable,
    render_table,
)

ARGUMENT_SPEC = {
    "results_by_node": {"type": "dict", "required": True},
    "remove": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):
    """Action plugin that only shows and checks."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the environments, and return the nodes from which an environment can be removed."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display = Display()
        display.display(adapt_commands(render_table(args["results_by_node"])))
        if not args["remove"]:
            return {"changed": False, "nodes": []}
        try:
            nodes = find_removable(args["results_by_node"], args["remove"])
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from None
        if not nodes:
            display.display(f"no node has an environment {args['remove']}: nothing to remove")
        return {"changed": False, "nodes": nodes}
