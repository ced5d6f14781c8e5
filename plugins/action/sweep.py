# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module sweep: compare variants of a job by launching them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import (
    find_wrong_values,
    read_entry_points,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.options import (
    SEARCH_OPTIONS,
    find_option_error,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import SearchSettings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import PLACEHOLDER
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import common_settings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import Variant
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.sweep import (
    PAGE_FILE,
    STATE_FILE,
    Sweep,
    SweepRequest,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.table import render_text
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.variants import (
    SweepInput,
    ValueReaders,
    read_variants,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import (
    parse_arguments,
    parse_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import read_job_keys
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "variants": {"type": "raw", "default": []},
    "args": {"type": "raw", "default": []},
    "repeats": {"type": "int", "default": 1},
    "timeout": {"type": "float", "default": 0.0},
    "parallel": {"type": "int", "default": 1},
    "queued": {"type": "bool", "default": False},
    "fit": {"type": "bool", "default": False},
    "fit_args": {"type": "raw", "default": []},
    **SEARCH_OPTIONS,
    "run_id": {"type": "str", "default": "sweep"},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}
LAUNCH = Path(__file__).resolve().parents[2] / "roles" / "launch"


def find_count_error(args: dict[str, Any]) -> str:
    """Return what is wrong with the number of repeats or of parallel variants, or "" if both are valid."""
    for name in ("repeats", "parallel"):
        if args[name] < 1:
            return f"sweep_{name} is {args[name]}, but must be 1 or more"
    if args["parallel"] > 1 and not args["queued"]:
        return (
            f"sweep_parallel is {args['parallel']}, but variants that run at the same time need different nodes, which "
            "only Slurm can choose: add -e launch_scheduler=slurm -e launch_slurm_choose=true, or omit sweep_parallel"
        )
    return ""


class ActionModule(ActionBase):
    """Starts playbooks, and writes below the directory of the records."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Compare the variants."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variants = self.variants(args, len(task_vars["groups"].get(args["group"], [])))
        if self._task.check_mode:
            return {"changed": True}
        runs = records_directory(args["directory"], args["group"], task_vars)
        directory = runs / args["run_id"]
        search = SearchSettings(
            start=args["start"], multiple=args["multiple"], max_batch=args["max"], margin=args["margin"]
        )
        request = SweepRequest(
            variants=variants,
            repeats=args["repeats"],
            timeout=args["timeout"],
            search=search if args["fit"] else None,
            fit_timeout=args["probe_timeout"],
            parallel=args["parallel"] if args["queued"] else 0,
        )
        display = Display()
        try:
            with sequence(directory) as runner:
                common = common_settings(task_vars, args["group"])
                sweep = Sweep(directory, runs, runner, lambda text: display.display(f"[sweep] {text}"), common)
                state = sweep.run(request)
        except ExperimentError as error:
            raise UserError(str(error), result={"changed": True}) from error
        for table in state["tables"]:
            display.display(f"\n{render_text(table)}")
        display.display(f"\nthe tables: {directory / PAGE_FILE}, the numbers: {directory / STATE_FILE}")
        if not any(run["succeeded"] for run in state["runs"]):
            raise UserError("no variant succeeded", result={"changed": True})
        return {"changed": True, "tables": state["tables"]}

    def variants(self, args: dict[str, Any], machines: int) -> list[Variant]:
        """Return the variants to compare. Raise AnsibleActionFail with all problems."""
        error_message = find_count_error(args)
        if not SAFE_RUN_ID.match(args["run_id"]) or len(args["run_id"]) > 30:
            error_message = "run_id is not a safe name: use at most 30 letters, digits, '.', '_' and '-'"
        if args["fit"] and not error_message:
            error_message = find_option_error({**args, "args": [PLACEHOLDER], "confirm_args": []})
        if error_message:
            raise UserError(error_message, result={"changed": False})
        common = {}
        for name in ("args", "fit_args"):
            try:
                common[name] = parse_arguments(args[name], self._loader)
            except ValueError as error:
                option = "sweep_args" if name == "args" else name
                raise UserError(f"{option}: {error}", result={"changed": False}) from error
        main = read_entry_points(LAUNCH)["main"]
        sweep_input = SweepInput(
            sweep=args["run_id"],
            variants=args["variants"],
            args=common["args"],
            fit_args=common["fit_args"],
            fit=args["fit"],
            keys=read_job_keys(LAUNCH.parent),
            options=set(main["options"]),
            machines=machines,
        )
        readers = ValueReaders(
            arguments=lambda value: parse_arguments(value, self._loader),
            environment=lambda value: parse_environment(value, self._loader),
            find_errors=lambda variables: find_wrong_values(main, lambda name: variables[name], variables),
        )
        variants, problems = read_variants(sweep_input, readers)
        if len(problems) == 1:
            raise UserError(problems[0], result={"changed": False})
        if problems:
            raise AnsibleActionFail("\n".join(problems))
        return variants
