# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module list_code. Connects to nothing."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._project.local_code import (
    add_requirements,
    read_local_code,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import make_code_tree

ARGUMENT_SPEC = {
    "source": {"type": "path", "required": True},
    "exclude": {"type": "list", "elements": "str", "default": []},
    "directory": {"type": "str", "required": True},
    "user": {"type": "str", "default": ""},
    "requirements": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Reads a directory on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the directory's contents."""
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        code, tree = read_local_code(args["source"], args["exclude"], args["directory"], args["user"])
        if args["requirements"]:
            add_requirements(code)
        return {"changed": False, "code": code, "recorded": make_code_tree(args["source"], tree)}
