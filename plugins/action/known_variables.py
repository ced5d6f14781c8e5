# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module known_variables. Connects to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars_lint import (
    reject_stray_extra_vars,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import (
    describe_overridden_names,
    describe_unknown_variables,
    documented_options,
    find_wrong_values,
    read_entry_points,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    reject_unused_options,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import (
    find_unknown_keys,
    read_job_keys,
)

ARGUMENT_SPEC = {
    "role_path": {"type": "path"},
    "short_names": {"type": "list", "elements": "str", "default": []},
    "settled": {"type": "list", "elements": "str", "default": []},
    "values": {"type": "bool", "default": False},
    "entry_point": {"type": "str", "default": "main"},
}


class ActionModule(ActionBase):
    """Compares the names of Ansible variables with those that the role documents."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail if a role variable is misspelled."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if args["role_path"] is None:
            reject_unused_options(task_vars)
            problems = describe_unknown_variables("", set(), {}, args["short_names"], load_extra_vars(self._loader))
            if problems:
                raise AnsibleActionFail("\n".join(problems))
            return {"changed": False}
        reject_stray_extra_vars()  # in our playbooks, the first task has already done the rest
        role = Path(args["role_path"])
        host_name = task_vars["inventory_hostname"]
        names_by_host = {
            host: list(task_vars["hostvars"][host]) for host in task_vars["ansible_play_hosts_all"] if host != host_name
        }
        names_by_host[host_name] = list(task_vars)
        extra = load_extra_vars(self._loader)
        problems = describe_unknown_variables(
            f"{role.name}_",
            documented_options(role),
            names_by_host,
            args["short_names"],
            extra,
            lambda: {
                name
                for path in role.parent.glob("*/meta/argument_specs.yml")
                for name in documented_options(path.parents[1])
            },
        )
        if problems:
            manual = f"{role / 'defaults' / 'main.yml'} lists the variables. Correct the name, or remove it."
            raise AnsibleActionFail("\n".join([*problems, manual]))
        problems = find_unknown_keys(task_vars.get("job", {}), read_job_keys(role.parent))
        if problems:
            raise AnsibleActionFail("\n".join(problems))
        read_names = [name for name in args["short_names"] if name not in args["settled"]]
        problems = describe_overridden_names(
            role, read_names, extra, lambda name: self._templar.template(task_vars.get(name))
        )
        if problems:
            raise AnsibleActionFail("\n".join(problems))
        if args["values"]:
            entry_point = read_entry_points(role)[args["entry_point"]]
            problems = find_wrong_values(entry_point, lambda name: self._templar.template(task_vars[name]), task_vars)
            if problems:
                raise AnsibleActionFail(
                    "\n".join([*problems, f"{role / 'defaults' / 'main.yml'} lists the variables."])
                )
        return {"changed": False}
