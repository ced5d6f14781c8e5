# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module flash_attention: run a step on the node, and show its progress."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.detached import NOT_IN_CHECK_MODE, run_code

WHEELS = "https://github.com/Dao-AILab/flash-attention/releases/download/vVERSION"
ARGUMENT_SPEC: dict[str, Any] = {
    "step": {"type": "str", "choices": ["gpus", "choose", "prove"], "required": True},
    "directory": {"type": "path", "required": True},
    "version": {"type": "str", "default": "auto"},
    "wheels": {"type": "str", "default": WHEELS},
    "sha256": {"type": "str", "default": ""},
    "build": {"type": "bool", "default": False},
    "max_jobs": {"type": "int", "default": 0},
    "cuda_home": {"type": "str", "default": ""},
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "key": {"type": "str", "no_log": False},
}
CHOICE_OPTIONS = ("version", "wheels", "sha256", "build", "max_jobs", "cuda_home", "capabilities")
DESCRIPTIONS = {"gpus": "querying the GPUs", "choose": "finding a matching wheel", "prove": "checking that it works"}


def build_request(args: dict[str, Any]) -> dict[str, Any]:
    """Return the request for a step on the node; the step's result is cached in the environment."""
    installed = os.path.join(args["directory"], "installed")
    if args["step"] == "choose":
        options = {name: args[name] for name in CHOICE_OPTIONS}
        return {"step": "choose", **options, "choice_file": os.path.join(installed, "flash_attention.choice")}
    if args["step"] == "prove":
        return {"step": "prove", "key": args["key"], "marker": os.path.join(installed, "flash_attention.proved")}
    return {"step": "gpus"}


class ActionModule(ActionBase):
    """Runs a step with the environment's interpreter."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the step's result."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        required_if = [("step", "prove", ["key"])]
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, required_if=required_if)
        if self._task.check_mode:
            return NOT_IN_CHECK_MODE
        python = os.path.join(args["directory"], "env", "bin", "python")
        description = f"flash_attention: {DESCRIPTIONS[args['step']]}"
        return run_code(self, task_vars, description, python, "_torch.flash_attention", build_request(args))
