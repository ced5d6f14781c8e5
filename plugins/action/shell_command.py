# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module shell_command: shows a command. Connects to nothing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import CONTAINER_OPTIONS, DEFAULTS
from ansible_collections.muster.training.plugins.plugin_utils._plan.read_job import read_job
from ansible_collections.muster.training.plugins.plugin_utils._plan.shell_command import (
    SSH_OPTIONS,
    login_argv,
    shell_script,
)

ARGUMENT_SPEC = {
    **CONTAINER_OPTIONS,
    "facts": {"type": "dict", "required": True},
    "address": {"type": "str", "default": ""},
    "run_id": {"type": "str", "default": ""},
    "user": {"type": "str", "default": ""},
    "json_file": {"type": "path"},
}


class ActionModule(ActionBase):
    """Shows a command for this host."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the command as a list of arguments."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            job_options = {name: value for name, value in args.items() if name in DEFAULTS}
            job = read_job({**DEFAULTS, **job_options}, target_needed=False)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        facts = {**args["facts"], "address": args["address"]}
        name = task_vars["inventory_hostname"]
        variable_names = (
            "ansible_host",
            "ansible_connection",
            "ansible_ssh_common_args",
            *(name for _option, name in SSH_OPTIONS),
        )
        variables = {
            variable: self._templar.template(task_vars[variable])
            for variable in variable_names
            if variable in task_vars
        }
        argv = login_argv(variables, name, args["user"], shell_script(job, facts, args["run_id"]))
        Display().display(f"{name}: {shlex.join(argv)}")
        if args["json_file"]:
            Path(args["json_file"]).write_text(json.dumps(argv), encoding="utf-8")
        return {"changed": False, "argv": argv}
