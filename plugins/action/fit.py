# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module fit: search for the largest batch size that fits, or use the result of a search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.options import (
    SEARCH_OPTIONS,
    find_option_error,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import SearchSettings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import common_settings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import parse_arguments
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import SearchState

# The methods import the search and report functions that they need: every launch loads this file for a task that most
# launches skip, and those imports take 0.1 s.
ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["searched", "taken"], "default": "searched"},
    "program": {"type": "str", "default": ""},
    "nnodes": {"type": "int", "default": 0},
    "args": {"type": "raw", "default": []},
    "confirm_args": {"type": "raw", "default": []},
    **SEARCH_OPTIONS,
    "run_id": {"type": "str", "default": "fit"},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}


def describe_result(state: SearchState, name: str) -> str:
    """Describe the result for the user."""
    result, history = state["result"], state["history"]
    if not result:
        if any(probe["fits"] for probe in history):
            return f"{name}: no batch size passed the longer confirmation run; see its logs"
        return f"{name}: not even a batch size of 1 fits; try FSDP or ZeRO, gradient checkpointing, or a smaller model"
    lines = [
        f"{name}: the largest batch size per rank is {result}, after {len(history)} probes, "
        f"with a margin of {state['search']['margin']:.0%}. It is valid for these nodes and this number of ranks: "
        + adapt_commands(f"ansible-playbook launch.yml -e fitted={name}")
    ]
    lines += [
        f"  batch {probe['batch']}: {probe['samples_per_second']:.4g} samples/s"
        for probe in sorted(history, key=lambda probe: probe["batch"])
        if probe["samples_per_second"]
    ]
    if state["fastest"] is not None and state["fastest"] < result:
        lines.append(f"  batch {state['fastest']} is at most 2 % slower than the fastest larger batch")
    return "\n".join(lines)


def apply_fitted_batch(args: dict[str, Any], runs: Path, loader: DataLoader) -> dict[str, Any]:
    """Return a launch's arguments with the batch size found by a search.

    Raise ExperimentError, or ValueError for invalid arguments.
    """
    from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.apply_result import apply_fit

    fitted = apply_fit(runs, args["run_id"], args["program"], parse_arguments(args["args"], loader))
    display = Display()
    display.display(f"[fit] batch {fitted.batch}, found by {args['run_id']}")
    if args["nnodes"] and fitted.nnodes != args["nnodes"]:
        display.warning(
            f"{args['run_id']} was a search on {fitted.nnodes} nodes, but this run has {args['nnodes']}: with FSDP or "
            "ZeRO, a different batch size fits"
        )
    return {"changed": False, "batch_size": fitted.batch, "launch_args": fitted.args}


class ActionModule(ActionBase):
    """Starts playbooks, and writes below the records directory."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Search for the largest batch size, or apply the result of a search."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        runs = records_directory(args["directory"], args["group"], task_vars)
        if args["state"] == "taken":
            return self.take(args, runs)
        result_variables = [name for name in ("fitted", "launch_fitted") if name in load_extra_vars(self._loader)]
        error_message = (
            f"{result_variables[0]} is the result of a search and cannot be used in another search: remove it"
            if result_variables
            else find_option_error(args)
        )
        if error_message:
            raise UserError(adapt_commands(error_message), result={"changed": False})
        if self._task.check_mode:
            return {"changed": True}
        return self.search(args, runs, task_vars)

    def take(self, args: dict[str, Any], runs: Path) -> dict[str, Any]:
        """Return a launch's arguments with the batch of a search."""
        from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import (
            ExperimentError,
        )

        try:
            return apply_fitted_batch(args, runs, self._loader)
        except ExperimentError as error:
            raise UserError(adapt_commands(str(error)), result={"changed": False}) from error
        except ValueError as error:
            raise AnsibleActionFail(f"the job cannot be planned:\n{error}") from error

    def search(self, args: dict[str, Any], runs: Path, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Search for the largest batch size that fits by launching the job."""
        from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import (
            BatchSearch,
            FitJob,
        )
        from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import (
            ExperimentError,
        )

        directory = runs / args["run_id"]
        job = FitJob(
            args=args["args"],
            confirm_args=args["confirm_args"],
            timeout=args["probe_timeout"],
        )
        search = SearchSettings(
            start=args["start"], multiple=args["multiple"], max_batch=args["max"], margin=args["margin"]
        )
        display = Display()
        try:
            with sequence(directory) as runner:
                common = common_settings(task_vars, args["group"])
                batch_search = BatchSearch(
                    directory, runs, runner, lambda text: display.display(f"[fit] {text}"), common
                )
                state = batch_search.search(job, search)
        except ExperimentError as error:
            raise UserError(str(error), result={"changed": True}) from error
        display.display(describe_result(state, args["run_id"]))
        if not state["result"]:
            raise UserError("no batch fits", result={"changed": True})
        return {"changed": True, "batch_size": state["result"], "history": state["history"]}
