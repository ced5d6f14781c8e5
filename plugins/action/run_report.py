# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_report: the report of a run, or of several. Connects to nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.action.run_record import LATEST, records_directory, whole_id
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_comparison, write_report
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

ARGUMENT_SPEC = {
    "runs": {"type": "list", "elements": "str", "default": []},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "logbook": {"type": "path", "default": ""},
    "report_directory": {"type": "path", "default": ""},
    "required": {"type": "bool", "default": True},
}
MOST_RUNS = 20  # columns that fit on a page


def record_of(directory: Path, given: str) -> Path:
    """The record of a run by its id or the beginning of it; by default the latest.

    Raises AnsibleActionFail if there is none.
    """
    if given and not SAFE_RUN_ID.match(given):
        raise AnsibleActionFail(f"run_id {ascii(given)[:80]} is not a safe name: use letters, digits, '.', '_' and '-'")
    record = (directory / (whole_id(directory, given) or LATEST)).resolve()
    if not (record / "plan.json").is_file():
        raise AnsibleActionFail(
            f"there is no record {directory / (given or LATEST)}: name a run launched from here with -e run_id=NAME, "
            "or use the inventory it was launched with"
        )
    return record


class ActionModule(ActionBase):
    """Reads records and writes beside them, on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make a report, or a comparison."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True}
        try:
            return make(args, records_directory(args["directory"], args["group"], task_vars))
        except Exception as problem:
            what = " and ".join(run for run in args["runs"] if run) or "the latest run"
            message = f"the report of {what[:200]} could not be created: {as_text(problem)}"
            if args["required"]:
                raise Refusal(as_typed(message), result={"changed": False}) from problem
            Display().warning(as_typed(f"{message}; to try again: ansible-playbook report.yml{run_ids(args['runs'])}"))
            return {"changed": False, "report": "", "msg": message}


def make(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Write what is requested, and return its path."""
    runs = args["runs"] or [""]
    records = list(dict.fromkeys(record_of(directory, run) for run in runs))
    if len(records) > MOST_RUNS:
        raise AnsibleActionFail(f"{len(records)} runs are too many for one page: give at most {MOST_RUNS}")
    book = Path(args["logbook"] or directory.parent / "logbook").expanduser()
    if len(records) > 1:
        target = Path(args["report_directory"]).expanduser() if args["report_directory"] else None
        page, why = write_comparison(records, book, target, time.time())
        findings = []
    else:
        written = write_report(records[0], book, time.time())
        page, why, findings = written.page, written.without_pictures, written.report["findings"]
    Display().display(f"report: {page}" + (f" (without plots: {why})" if why else ""))
    return {"changed": True, "report": str(page), "findings": findings, "without_pictures": why}


def run_ids(runs: list[str]) -> str:
    """The words that name runs on a command line."""
    named = [run for run in runs if run]
    return "" if not named else f" -e run_id={named[0]}" if len(named) == 1 else f" -e runs={','.join(named)}"


def as_text(problem: Exception) -> str:
    """A problem in words."""
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}; free up space there, or take ownership of the directory"
    return str(problem) or type(problem).__name__
