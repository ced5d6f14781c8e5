# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module rehearse: launches a job for a few steps, and predicts the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.action.run_record import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import ALL, Job
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.forecast import named, render
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.rehearsal import (
    STEPS,
    RehearsalError,
    Rehearsing,
    close,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import common_settings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID, parse_nnodes
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import job_arguments
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

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


def first_number(text: str) -> int | None:
    """The number at the start of a text, such as the last line of du or df; None if there is none."""
    words = (text.strip().splitlines() or [""])[-1].split()
    return int(words[0]) if words and words[0].isascii() and words[0].isdigit() else None


def wanted_nodes(nnodes: str, nodes: Sequence[str], machines: int) -> int:
    """How many nodes a launch uses: the given number, else the named nodes, else all. Raises ValueError."""
    return parse_nnodes(nnodes)[1] if nnodes else len(nodes) or machines


class ActionModule(ActionBase):
    """Starts playbooks, and writes below the directory of the records."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Launch, or judge the launches."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        job = self.job(args, len(task_vars["groups"].get(args["group"], [])))
        if self._task.check_mode:
            return {"changed": True, "checkpoint": "", "node": ""}
        runs = records_directory(args["directory"], args["group"], task_vars)
        directory = runs / args["run_id"]
        try:
            if args["state"] == "played":
                return self.played(directory, runs, job, common_settings(task_vars, args["group"]))
            known = close(directory, first_number(args["checkpoint_bytes"]), first_number(args["free_bytes"]))
        except RehearsalError as problem:
            raise Refusal(str(problem), result={"changed": True}) from problem
        Display().display(render(known, args["run_id"]))
        if not known["go"]:
            raise Refusal("not yet: fix the problems above first", result={"changed": True})
        return {"changed": True, "rehearsal": known}

    def played(self, directory: Path, runs: Path, job: Job, common: str) -> dict[str, Any]:
        """The launches, and the checkpoint's directory."""
        with sequence(directory) as launches:
            say = Display().display
            known = Rehearsing(directory, runs, launches, lambda text: say(f"[rehearsal] {text}"), common).play(job)
        whole = named(known["starts"], ALL)
        told = whole is not None and whole["checkpoint"]
        return {
            "changed": True,
            "checkpoint": whole["checkpoint"] if whole is not None else "",
            "node": whole["node"] if whole is not None and told else "",
        }

    def job(self, args: dict[str, Any], machines: int) -> Job:
        """The job to rehearse. Raises Refusal if that is impossible."""
        wrong, words = "", dict[str, list[str]]()
        try:
            nnodes = wanted_nodes(args["nnodes"], args["nodes"], machines)
        except ValueError as problem:
            raise Refusal(str(problem), result={"changed": False}) from problem
        for name in ("args", "resume_args"):
            try:
                words[name] = job_arguments(args[name], self._loader)
            except ValueError as problem:
                raise Refusal(f"rehearse_{name}: {problem}", result={"changed": False}) from problem
        if args["state"] == "played" and not any(STEPS in word for word in words["args"]):
            wrong = (
                f"rehearse_args has no {STEPS}: put it where the script takes its step limit, such as "
                f'-e \'{{"rehearse_args": ["--max_steps", "{STEPS}"]}}\''
            )
        least = {"steps": 1, "total_steps": 0, "checkpoint_steps": 0, "checkpoints_kept": 1}
        for name, value in least.items():
            if args[name] < value:
                wrong = f"rehearse_{name} is {args[name]}, but must be {value} or more"
        if not SAFE_RUN_ID.match(args["run_id"]) or len(args["run_id"]) > 40:
            wrong = "run_id is not a safe name: use letters, digits, '.', '_' and '-', 40 at most"
        if wrong:
            raise Refusal(wrong, result={"changed": False})
        return Job(
            args=words["args"],
            resume_args=words["resume_args"],
            steps=args["steps"],
            nnodes=nnodes,
            patience=args["timeout"],
            total_steps=args["total_steps"],
            checkpoint_steps=args["checkpoint_steps"],
            kept=args["checkpoints_kept"],
            loss=args["loss"],
        )
