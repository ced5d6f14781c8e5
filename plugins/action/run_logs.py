# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module run_logs: the logs of a run on a node, fetched into the run's record."""

from __future__ import annotations

import base64
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._on_node import call_node

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "required": True},
    "directory": {"type": "path", "required": True},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):
    """A few calls to the node: pack, then 8 MiB a call."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fetch the logs; return where they lie."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True, "directory": args["directory"]}
        request = {**args, "node": task_vars["inventory_hostname"]}
        packed = call_node(self, ["_run"], {**request, "operation": "pack"}, task_vars)
        if packed["size"] is None:
            what = (
                f"{request['node']} has no run {args['run_id']} in {args['runs_directory']}: none of its logs are here"
            )
            Display().warning(what)
            return {"changed": False, "directory": None, "msg": what}
        target = Path(args["directory"])
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as archive:
            last = False
            while not last:
                piece = call_node(
                    self, ["_run"], {**request, "operation": "piece", "offset": archive.tell()}, task_vars
                )
                archive.write(base64.b64decode(piece["data"]))
                last = piece["last"]
            archive.seek(0)
            with tarfile.open(fileobj=archive, mode="r:gz") as tar:
                tar.extractall(target, filter="data")
        return {"changed": True, "directory": str(target)}
