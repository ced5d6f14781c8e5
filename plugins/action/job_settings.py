# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module job_settings. Connects to nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.plugin_utils._command_line.job_file_path import find_job_file
from ansible_collections.muster.training.plugins.plugin_utils._command_line.muster_command import path_as_typed
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import (
    parse_arguments,
    parse_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import (
    RELATED_SETTINGS,
    describe_replaced_settings,
    find_unknown_keys,
    read_job_keys,
    settings_of_job,
)
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {"extra_args": {"type": "raw", "default": []}, "show": {"type": "bool", "default": True}}
ROLES = Path(__file__).resolve().parents[2] / "roles"


class ActionModule(ActionBase):
    """Compares a job with the inventory variables."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the variables that a job sets, and show which settings they replace."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        raw_job = task_vars.get("job", {})
        keys = read_job_keys(ROLES)
        problems = find_unknown_keys(raw_job, keys)
        if problems:
            raise AnsibleActionFail("\n".join(problems))
        file = find_job_file(raw_job)
        source = path_as_typed(str(file)) if file else "job"
        job = self._evaluate_job(raw_job, source)
        extra = load_extra_vars(self._loader)
        project = self._project_variables(keys, extra, task_vars)
        settings = settings_of_job(
            job, keys, extra, project, lambda path: absolute_path(path, file.parent if file else Path.cwd())
        )
        variables = dict(settings.variables)
        try:
            if "launch_args" in variables:
                variables["launch_args"] = parse_arguments(variables["launch_args"], self._loader)
            if "launch_environment" in variables:
                variables["launch_environment"] = parse_environment(variables["launch_environment"], self._loader)
            if more := parse_arguments(args["extra_args"], self._loader):
                base = variables.get("launch_args", project.get("launch_args", job.get("args", [])))
                variables["launch_args"] = [*parse_arguments(base, self._loader), *more]
        except ValueError as error:
            raise UserError(f"{source}: {error}") from error
        line = describe_replaced_settings(source, settings.replaced)
        if line and args["show"]:
            Display().display(line)
        return {"changed": False, "variables": variables}

    def _evaluate_job(self, job: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Return the job's values with templates evaluated.

        Raise UserError with the key of a value that cannot be evaluated.
        """
        values: dict[str, Any] = {}
        for key, value in job.items():
            parts = value.items() if isinstance(value, Mapping) else [("", value)]
            for name, part in parts:
                try:
                    self._templar.template(part)
                except AnsibleError as error:
                    location = f"{key}: {name}" if name else key
                    raise UserError(
                        f"{source}: {location} cannot be evaluated: {root_cause(error)}. If the braces belong to the "
                        f"value, put !unsafe before it: {name or key}: !unsafe '...'"
                    ) from error
            values[key] = self._templar.template(value)
        return values

    def _project_variables(
        self, keys: Mapping[str, str], extra: Mapping[str, Any], task_vars: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the variables of all hosts of the play that a job may replace, each with the first host's value."""
        hosts = [task_vars["hostvars"].raw_get(host) for host in reversed(task_vars["ansible_play_hosts_all"])]
        variables = {name: value for host in hosts for name, value in host.items() if name not in extra}
        names = {*keys.values(), *RELATED_SETTINGS} & variables.keys()
        return {name: self._templar.template(variables[name]) for name in names}


def absolute_path(path: str, directory: Path) -> str:
    """Return a path without `..` and ~; a relative path is resolved against the directory."""
    return os.path.normpath(directory / Path(path).expanduser())


def root_cause(error: BaseException) -> str:
    """Return the message of an exception's root cause, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
