# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module python_layer: run a step on the node, and show its progress."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.detached import NOT_IN_CHECK_MODE, run_code

DESCRIPTIONS = {
    "read_lock": "reading the previous lock",
    "solve": "resolving and downloading packages",
    "restore": "downloading the recorded packages",
    "compare": "comparing the node's packages with the lock",
    "install": "installing",
    "serve": "serving files to the other nodes",
    "stop_serving": "stopping the file server",
}
READ_ONLY_STEPS = ("read_lock", "compare")
# steps to follow if an interrupted play has left them running
RESUMABLE_STEPS = ("solve", "restore", "install")
ARGUMENT_SPEC: dict[str, Any] = {
    "step": {"type": "str", "choices": list(DESCRIPTIONS), "required": True},
    "directory": {"type": "path", "required": True},
    "layer": {"type": "str", "required": True},
    "order": {"type": "int", "default": 0},
    "manager": {"type": "str", "choices": ["venv", "uv", "conda"], "default": "venv"},
    "python": {"type": "str", "default": "python3"},
    "requested_python": {"type": "str", "default": "auto"},
    "min_free_gb": {"type": "float", "default": 0},
    "pip_version": {"type": "str", "default": ""},
    "uv_version": {"type": "str", "default": ""},
    "index_url": {"type": "str", "default": "", "no_log": True},
    "torch_index_url": {"type": "str", "default": "", "no_log": True},
    "extra_index_urls": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "find_links": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "requirements": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "files": {"type": "list", "elements": "str", "default": []},
    "editable": {"type": "list", "elements": "str", "default": []},
    "project": {"type": "dict", "default": {}},
    "project_name": {"type": "str", "default": ""},
    "environment": {"type": "dict", "default": {}, "no_log": True},
    "options": {"type": "list", "elements": "str", "default": []},
    "conda_installer_url": {"type": "str", "default": "", "no_log": True},
    "conda_installer_sha256": {"type": "str", "default": ""},
    "conda_channels": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "conda_packages": {"type": "list", "elements": "str", "default": []},
    "conda_accept_terms": {"type": "bool", "default": False},
    "conda_init": {"type": "bool", "default": False},
    "lock": {"type": "dict", "default": {}},
    "from": {"type": "str", "default": ""},
    "url": {"type": "str", "default": "", "no_log": True},
    "address": {"type": "str", "default": ""},
    "token": {"type": "str", "default": "", "no_log": True},
}


def package_diff(result: dict[str, Any]) -> dict[str, str]:
    """Return a diff of the packages that an installation changes, with one package per line."""
    return {
        "before": "".join(f"{name}\n" for name in result.get("removed", [])),
        "after": "".join(f"{name}\n" for name in result.get("installed", [])),
    }


class ActionModule(ActionBase):
    """Runs a step as the task's user."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the step's result."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        step = args["step"]
        if self._task.check_mode and step not in READ_ONLY_STEPS:
            return NOT_IN_CHECK_MODE
        description = f"{args['layer']}: {DESCRIPTIONS[step]}"
        result = run_code(
            self, task_vars, description, "python3", "_python_env.steps", args, follow=step in RESUMABLE_STEPS
        )
        return {**result, "diff": package_diff(result)} if "installed" in result else result
