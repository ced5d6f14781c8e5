# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module training_run."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CALL_TIMEOUT, STOP_CALL_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import clean_line
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    call_node,
    module_source,
    prepare_calls,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import (
    PROGRAMS,
    SUPERVISOR,
    packed_supervisor,
    supervisor_files,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID, environment_problems
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import parse_environment
from ansible_collections.muster.training.plugins.plugin_utils._plan.notify_targets import read_targets

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["started", "saved", "stopped", "absent"]},
    "run_id": {"type": "str", "default": ""},
    "plan": {"type": "dict"},
    "environment": {"type": "dict", "default": {}, "no_log": True},
    "token": {"type": "str", "no_log": True},
    "notify": {"type": "raw", "default": [], "no_log": True},
    "stop": {"type": "bool", "default": False},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "replace": {"type": "bool", "default": False},
    "share": {"type": "bool", "default": False},
    "scheduler": {"type": "str", "choices": ["ssh", "slurm"], "default": "ssh"},
    "requeue": {"type": "int", "default": 0},
    "wait": {"type": "int", "default": 0},
    "hub": {"type": "int"},
}
OPERATIONS = {"started": "start", "saved": "save", "stopped": "stop", "absent": "remove", None: "read"}
ENTRY = "_run.dispatch"
prepare_calls(ENTRY, SUPERVISOR)


def program_placeholder(*sources: str) -> str:
    """Return the placeholder that a diff shows for one of muster's programs, which are long and the same in every
    run.
    """
    lines = sum(len(source.splitlines()) for source in sources)
    return f"(muster's own program, {lines} lines{f' in {len(sources)} files' if sources[1:] else ''})\n"


def planned_files(plan: dict[str, Any], environment: dict[str, Any]) -> list[dict[str, str]]:
    """Return the files that a start would write, as diffs; never show values from the user's environment."""
    hidden_environment = "".join(f"{name}=(hidden)\n" for name in sorted(environment))
    files = plan.get("files", {})
    # the contents of the files follow
    plan_text = json.dumps({**plan, "files": sorted(files)}, indent=1, sort_keys=True) + "\n"
    texts = {
        "plan.json (0600)": plan_text,
        "environment.json (0600)": hidden_environment,
        "token (0600)": "(hidden)\n",
        "supervisor.py (0600)": program_placeholder(*supervisor_files().values()),
        **{f"{name} (0600)": text for name, text in sorted(files.items())},
        **{
            f"bin/{name} (0700)": program_placeholder(module_source(PROGRAMS[name]))
            for name in sorted(plan.get("programs", []))
        },
    }
    return [{"before": "", "after": text, "after_header": header} for header, text in texts.items()]


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the run on this node to the requested state, or read its status."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, request = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        request.update(
            operation=OPERATIONS[request["state"]],
            node=task_vars["inventory_hostname"],
            check=self._task.check_mode,
            read_only=request["state"] is None,
        )
        if request["run_id"] and not SAFE_RUN_ID.match(request["run_id"]):
            raise AnsibleActionFail(
                f"run_id {ascii(request['run_id'])[:80]} is not a safe name: use at most 63 letters, digits, '.', "
                "'_' and '-', starting with a letter or digit"
            )
        if request["state"] == "started":
            problems = environment_problems(request["environment"])
            if not request["plan"] or not request["token"] or problems:
                raise AnsibleActionFail(
                    "; ".join(problems) or "state: started needs a plan (from launch_plan) and a token"
                )
            try:
                variables = parse_environment(request["environment"], self._loader)
                request["notify"] = read_targets(request["notify"])
            except ValueError as error:
                raise AnsibleActionFail(str(error)) from None
            request["environment"] = {name: str(value) for name, value in variables.items()}
            if self._task.check_mode:
                return {
                    "changed": True,
                    "command": request["plan"]["command"],
                    "diff": planned_files(request["plan"], request["environment"]),
                }
            request["supervisor"] = packed_supervisor()
            request["programs"] = {name: module_source(PROGRAMS[name]) for name in request["plan"].get("programs", [])}
        try:
            timeout = request["wait"] + CALL_TIMEOUT if request["state"] is None else STOP_CALL_TIMEOUT
            reply = call_node(self, ENTRY, request, task_vars, timeout)
            for text in reply.get("events", []):
                Display().display(f"[muster] {clean_line(text)}")
            return reply
        except AnsibleConnectionFailure as error:
            if request["state"] or not self._task.ignore_unreachable:
                raise
            # after a read-only call, a later task reports it for all nodes at once
            return {"changed": False, "node_unreachable": True, "msg": str(error)}
