# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module rehearse: launch a job for a few steps and make a forecast for the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    ALL_NODES,
    RehearsalJob,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.forecast import find_launch, render
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.rehearsal import (
    STEPS,
    RehearsalRunner,
    finish_rehearsal,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import common_settings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID, parse_nnodes
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import parse_arguments
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["played", "judged"], "required": True},
    "args": {"type": "raw", "default": []},
    "resume_args": {"type": "raw", "default": []},
    "steps": {"type": "int", "default": 20},
    "nnodes": {"type": "str", "default": ""},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 1800.0},
    "total_steps": {"type": "int", "default": 0},
    "checkpoint_steps": {"type": "int", "default": 0},
    "checkpoints_kept": {"type": "int", "default": 1},
    "loss": {"type": "str", "default": ""},
    "checkpoint_bytes": {"type": "str", "default": ""},
    "free_bytes": {"type": "str", "default": ""},
    "run_id": {"type": "str", "default": "rehearsal"},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}


def parse_leading_number(text: str) -> int | None:
    """Return the number at the start of a text's last line, as in the output of du or df, or None."""
    tokens = (text.strip().splitlines() or [""])[-1].split()
    return int(tokens[0]) if tokens and tokens[0].isascii() and tokens[0].isdigit() else None


def count_nodes(nnodes: str, nodes: Sequence[str], machines: int) -> int:
    """Return how many nodes a launch uses: the configured number, or else the named nodes, or else all nodes.

    Raise ValueError for an invalid number.
    """
    return parse_nnodes(nnodes)[1] if nnodes else len(nodes) or machines


def user_of_job(extra_vars: Mapping[str, Any], job: object, node_variables: Mapping[str, Any]) -> Any:
    """Return the user that a job runs as, determined as in a launch: from the command line, the job file or the
    project.
    """
    in_job = job if isinstance(job, Mapping) else {}
    return extra_vars.get("launch_user", in_job.get("user", node_variables.get("launch_user", "")))


class ActionModule(ActionBase):
    """Starts playbooks, and writes below the directory of the records."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Launch the job, or judge earlier launches."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        job = self.job(args, len(task_vars["groups"].get(args["group"], [])))
        if self._task.check_mode:
            return {"changed": True, "checkpoint": "", "node": "", "user": ""}
        runs = records_directory(args["directory"], args["group"], task_vars)
        directory = runs / args["run_id"]
        try:
            if args["state"] == "played":
                result = self.launch_all(directory, runs, job, common_settings(task_vars, args["group"]))
                return {**result, "user": self.user_on(result["node"], task_vars)}
            rehearsal = finish_rehearsal(
                directory, parse_leading_number(args["checkpoint_bytes"]), parse_leading_number(args["free_bytes"])
            )
        except ExperimentError as error:
            raise UserError(str(error), result={"changed": True}) from error
        Display().display(render(rehearsal, args["run_id"]))
        if not rehearsal["go"]:
            raise UserError("the job is not ready: fix the problems above first", result={"changed": True})
        return {"changed": True, "rehearsal": rehearsal}

    def launch_all(self, directory: Path, runs: Path, job: RehearsalJob, common: str) -> dict[str, Any]:
        """Run the launches, and return the checkpoint directory."""
        with sequence(directory) as runner:
            display = Display().display
            rehearsal = RehearsalRunner(
                directory, runs, runner, lambda text: display(f"[rehearsal] {text}"), common
            ).run(job)
        full_launch = find_launch(rehearsal["starts"], ALL_NODES)
        has_checkpoint = full_launch is not None and full_launch["checkpoint"]
        return {
            "changed": True,
            "checkpoint": full_launch["checkpoint"] if full_launch is not None else "",
            "node": full_launch["node"] if full_launch is not None and has_checkpoint else "",
        }

    def user_on(self, node: str, task_vars: Mapping[str, Any]) -> str:
        """Return the user that the job runs as on a node, or "" for the login user."""
        variables = task_vars["hostvars"][node] if node else {}
        user = user_of_job(load_extra_vars(self._loader), task_vars.get("job"), variables)
        return str(self._templar.template(user) or "")

    def job(self, args: dict[str, Any], machines: int) -> RehearsalJob:
        """Return the job to rehearse. Raise UserError if it cannot be rehearsed."""
        error_message, arguments = "", dict[str, list[str]]()
        try:
            nnodes = count_nodes(args["nnodes"], args["nodes"], machines)
        except ValueError as error:
            raise UserError(str(error), result={"changed": False}) from error
        for name in ("args", "resume_args"):
            try:
                arguments[name] = parse_arguments(args[name], self._loader)
            except ValueError as error:
                raise UserError(f"rehearse_{name}: {error}", result={"changed": False}) from error
        if args["state"] == "played" and not any(STEPS in argument for argument in arguments["args"]):
            error_message = (
                f"rehearse_args does not contain {STEPS}: put it where the script expects its step limit, such as "
                f'-e \'{{"rehearse_args": ["--max_steps", "{STEPS}"]}}\''
            )
        minimums = {"steps": 1, "total_steps": 0, "checkpoint_steps": 0, "checkpoints_kept": 1}
        for name, minimum in minimums.items():
            if args[name] < minimum:
                error_message = f"rehearse_{name} is {args[name]}, but must be {minimum} or more"
        if not SAFE_RUN_ID.match(args["run_id"]) or len(args["run_id"]) > 40:
            error_message = "run_id is not a safe name: use at most 40 letters, digits, '.', '_' and '-'"
        if error_message:
            raise UserError(error_message, result={"changed": False})
        return RehearsalJob(
            args=arguments["args"],
            resume_args=arguments["resume_args"],
            steps=args["steps"],
            nnodes=nnodes,
            timeout=args["timeout"],
            total_steps=args["total_steps"],
            checkpoint_steps=args["checkpoint_steps"],
            checkpoints_kept=args["checkpoints_kept"],
            loss=args["loss"],
        )
