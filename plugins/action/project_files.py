# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module project_files. Connects to nothing."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "directory": {"type": "path", "required": True},
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "content": {"type": "str", "required": True},
            "executable": {"type": "bool", "default": False},
        },
    },
}


def write_new_file(path: str, content: str, executable: bool) -> None:
    """Write a new file. Raise FileExistsError if it already exists, or another OSError if it cannot be written."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
        os.fchmod(handle, 0o755 if executable else 0o644)


class ActionModule(ActionBase):
    """Writes below a directory on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the missing files."""
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        written: list[str] = []
        diff: list[dict[str, str]] = []
        for file in args["files"]:
            path = os.path.join(args["directory"], file["path"])
            if os.path.lexists(path):
                continue
            if not self._task.check_mode:
                try:
                    write_new_file(path, file["content"], file["executable"])
                except OSError as error:
                    raise UserError(
                        f"{path} cannot be written: {error.strerror}. Choose another directory, or correct this one's "
                        "permissions",
                        result={"changed": bool(written), "written": written},
                    ) from error
            written.append(file["path"])
            diff.append({"before": "", "after": file["content"], "before_header": path, "after_header": path})
        return {"changed": bool(written), "written": written, "diff": diff}
