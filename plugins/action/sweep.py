# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module sweep: compares variants of a job by launching them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.action.fit import ARGUMENT_SPEC as FIT_SPEC
from ansible_collections.muster.training.plugins.action.fit import refusal_of as fit_refusal
from ansible_collections.muster.training.plugins.action.known_variables import entry_points, wrong_values
from ansible_collections.muster.training.plugins.action.run_record import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import Search
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import HOLE
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import common_settings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import Variant
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.sweep import (
    FILE,
    PAGE,
    Sweep,
    SweepError,
    Wanted,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.table import for_terminal
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.variants import (
    Given,
    Readers,
    read_variants,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import job_arguments, job_environment
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import job_keys
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

OF_SEARCH = ("start", "multiple", "max", "margin", "probe_timeout")
ARGUMENT_SPEC = {
    "variants": {"type": "raw", "default": []},
    "args": {"type": "raw", "default": []},
    "repeats": {"type": "int", "default": 1},
    "timeout": {"type": "float", "default": 0.0},
    "fit": {"type": "bool", "default": False},
    "fit_args": {"type": "raw", "default": []},
    **{name: FIT_SPEC[name] for name in OF_SEARCH},
    "run_id": {"type": "str", "default": "sweep"},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}
LAUNCH = Path(__file__).resolve().parents[2] / "roles" / "launch"


class ActionModule(ActionBase):
    """Starts playbooks, and writes below the directory of the records."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Compare."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variants = self.variants(args, len(task_vars["groups"].get(args["group"], [])))
        if self._task.check_mode:
            return {"changed": True}
        runs = records_directory(args["directory"], args["group"], task_vars)
        directory = runs / args["run_id"]
        search = Search(start=args["start"], multiple=args["multiple"], most=args["max"], margin=args["margin"])
        wanted = Wanted(
            variants=variants,
            repeats=args["repeats"],
            timeout=args["timeout"],
            search=search if args["fit"] else None,
            fit_timeout=args["probe_timeout"],
        )
        display = Display()
        try:
            with sequence(directory) as launches:
                common = common_settings(task_vars, args["group"])
                sweep = Sweep(directory, runs, launches, lambda text: display.display(f"[sweep] {text}"), common)
                state = sweep.run(wanted)
        except SweepError as problem:
            raise Refusal(str(problem), result={"changed": True}) from problem
        for table in state["tables"]:
            display.display(f"\n{for_terminal(table)}")
        display.display(f"\nthe tables: {directory / PAGE}, the numbers: {directory / FILE}")
        if not any(run["succeeded"] for run in state["runs"]):
            raise Refusal("no variant succeeded", result={"changed": True})
        return {"changed": True, "tables": state["tables"]}

    def variants(self, args: dict[str, Any], machines: int) -> list[Variant]:
        """The variants to compare. Raises AnsibleActionFail with all problems."""
        wrong = "" if args["repeats"] >= 1 else f"sweep_repeats is {args['repeats']}, but must be 1 or more"
        if not SAFE_RUN_ID.match(args["run_id"]) or len(args["run_id"]) > 30:
            wrong = "run_id is not a safe name: use letters, digits, '.', '_' and '-', 30 at most"
        if args["fit"] and not wrong:
            wrong = fit_refusal({**args, "args": [HOLE], "confirm_args": []})
        if wrong:
            raise Refusal(wrong, result={"changed": False})
        common = {}
        for name in ("args", "fit_args"):
            try:
                common[name] = job_arguments(args[name], self._loader)
            except ValueError as problem:
                option = "sweep_args" if name == "args" else name
                raise Refusal(f"{option}: {problem}", result={"changed": False}) from problem
        given = Given(
            sweep=args["run_id"],
            variants=args["variants"],
            args=common["args"],
            fit_args=common["fit_args"],
            fit=args["fit"],
            keys=job_keys(LAUNCH.parent),
            options=set(entry_points(LAUNCH)["main"]["options"]),
            machines=machines,
        )
        readers = Readers(
            arguments=lambda value: job_arguments(value, self._loader),
            environment=lambda value: job_environment(value, self._loader),
            wrong=lambda variables: wrong_values(LAUNCH, lambda name: variables[name], variables),
        )
        found, said = read_variants(given, readers)
        if len(said) == 1:
            raise Refusal(said[0], result={"changed": False})
        if said:
            raise AnsibleActionFail("\n".join(said))
        return found
