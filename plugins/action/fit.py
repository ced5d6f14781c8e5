# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module fit: searches with launches for the largest batch that fits, or uses a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.action.run_record import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.apply_result import taken
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import Fit, FitError, Job, State
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import Search
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import HOLE, has_hole
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import common_settings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import job_arguments
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["searched", "taken"], "default": "searched"},
    "program": {"type": "str", "default": ""},
    "nnodes": {"type": "int", "default": 0},
    "args": {"type": "raw", "default": []},
    "confirm_args": {"type": "raw", "default": []},
    "start": {"type": "int", "default": 8},
    "multiple": {"type": "int", "default": 8},
    "max": {"type": "int", "default": 4096},
    "margin": {"type": "float", "default": 0.05},
    "probe_timeout": {"type": "float", "default": 600.0},
    "run_id": {"type": "str", "default": "fit"},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}


def refusal_of(args: dict[str, Any]) -> str:
    """What is wrong with the arguments, "" if nothing is."""
    for name in ("args", "confirm_args"):
        if not isinstance(args[name], (str, list)):
            return f"fit_{name} is {type(args[name]).__name__}, but must be a list of arguments or a string"
    if not has_hole(args["args"]):
        return (
            f"fit_args has no {HOLE}: put it where the script takes its batch size, such as "
            f'-e \'{{"fit_args": ["--batch_size", "{HOLE}", "--max_steps", "20"]}}\''
        )
    if args["confirm_args"] and not has_hole(args["confirm_args"]):
        return f"fit_confirm_args has no {HOLE}, so it would not confirm anything"
    if not 1 <= args["start"] <= args["max"]:
        return f"fit_start is {args['start']}, but must be 1 to fit_max, which is {args['max']}"
    if args["multiple"] < 1 or not 0 <= args["margin"] < 1:
        return (
            f"fit_multiple is {args['multiple']}, fit_margin {args['margin']:g}: they must be at least 1, and from 0 "
            "to below 1"
        )
    if not SAFE_RUN_ID.match(args["run_id"]) or len(args["run_id"]) > 40:
        return "run_id is not a safe name: use letters, digits, '.', '_' and '-', 40 at most"
    return ""


def told(state: State, name: str) -> str:
    """The result in words."""
    result, history = state["result"], state["history"]
    if not result:
        if any(one["fits"] for one in history):
            return f"{name}: no batch size passed the longer run; see its logs"
        return f"{name}: not even a batch size of 1 fits: try FSDP or ZeRO, gradient checkpointing, or a smaller model"
    lines = [
        f"{name}: the largest batch per rank is {result}, after {len(history)} probes and "
        f"{state['search']['margin']:.0%} margin. It is valid for these nodes and this number of ranks: "
        + as_typed(f"ansible-playbook launch.yml -e fitted={name}")
    ]
    lines += [
        f"  batch {one['batch']}: {one['samples_per_second']:.4g} samples/s"
        for one in sorted(history, key=lambda one: one["batch"])
        if one["samples_per_second"]
    ]
    if state["fastest"] is not None and state["fastest"] < result:
        lines.append(f"  batch {state['fastest']} is within 2 % of the fastest larger one")
    return "\n".join(lines)


def take(args: dict[str, Any], runs: Path, loader: DataLoader) -> dict[str, Any]:
    """A launch's arguments with the found batch. Raises FitError, or ValueError for invalid arguments."""
    found = taken(runs, args["run_id"], args["program"], job_arguments(args["args"], loader))
    display = Display()
    display.display(f"[fit] batch {found.batch}, found by {args['run_id']}")
    if args["nnodes"] and found.nnodes != args["nnodes"]:
        display.warning(
            f"{args['run_id']} was a search on {found.nnodes} nodes, but this run has {args['nnodes']}: with FSDP or "
            "ZeRO a different batch fits"
        )
    return {"changed": False, "batch_size": found.batch, "launch_args": found.args}


class ActionModule(ActionBase):
    """Starts playbooks, and writes below the directory of the records."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Search."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        runs = records_directory(args["directory"], args["group"], task_vars)
        if args["state"] == "taken":
            try:
                return take(args, runs, self._loader)
            except FitError as problem:
                raise Refusal(as_typed(str(problem)), result={"changed": False}) from problem
            except ValueError as problem:
                raise AnsibleActionFail(f"the job cannot be planned:\n{problem}") from problem
        given = [name for name in ("fitted", "launch_fitted") if name in load_extra_vars(self._loader)]
        wrong = (
            f"{given[0]} is the result of a search, and this is a search: leave it out" if given else refusal_of(args)
        )
        if wrong:
            raise Refusal(wrong, result={"changed": False})
        if self._task.check_mode:
            return {"changed": True}
        directory = runs / args["run_id"]
        job = Job(
            args=args["args"],
            confirm_args=args["confirm_args"],
            patience=args["probe_timeout"],
        )
        search = Search(start=args["start"], multiple=args["multiple"], most=args["max"], margin=args["margin"])
        display = Display()
        try:
            with sequence(directory) as launches:
                common = common_settings(task_vars, args["group"])
                fit = Fit(directory, runs, launches, lambda text: display.display(f"[fit] {text}"), common)
                state = fit.search(job, search)
        except FitError as problem:
            raise Refusal(str(problem), result={"changed": True}) from problem
        display.display(told(state, args["run_id"]))
        if not state["result"]:
            raise Refusal("no batch fits", result={"changed": True})
        return {"changed": True, "batch_size": state["result"], "history": state["history"]}
