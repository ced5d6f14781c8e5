# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_report: writes a report about one or more runs, without connecting to nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import find_record, records_directory
from ansible_collections.muster.training.plugins.plugin_utils._report.bundle import write_bundle
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_comparison, write_report
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "runs": {"type": "list", "elements": "str", "default": []},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "logbook": {"type": "path", "default": ""},
    "report_directory": {"type": "path", "default": ""},
    "required": {"type": "bool", "default": True},
    "bundle": {"type": "bool", "default": False},
}
MAX_RUNS = 20  # columns that fit on a page


class ActionModule(ActionBase):
    """Action plugin that reads records and writes next to them, on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write a report or a comparison."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True}
        try:
            return make_report(args, records_directory(args["directory"], args["group"], task_vars))
        except Exception as error:
            run_names = " and ".join(run for run in args["runs"] if run) or "the latest run"
            message = f"the report for {run_names[:200]} could not be created: {error_text(error)}"
            if args["required"]:
                raise UserError(adapt_commands(message), result={"changed": False}) from error
            Display().warning(
                adapt_commands(f"{message}; to try again: ansible-playbook report.yml{run_option(args['runs'])}")
            )
            return {"changed": False, "report": "", "msg": message}


def make_report(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Write the requested page and return its path."""
    runs = args["runs"] or [""]
    records = list(dict.fromkeys(find_record(directory, run, "report" if len(runs) == 1 else "") for run in runs))
    if len(records) > MAX_RUNS:
        raise AnsibleActionFail(f"{len(records)} runs are too many for one page: name at most {MAX_RUNS}")
    logbook = Path(args["logbook"] or directory.parent / "logbook").expanduser()
    if len(records) > 1:
        target = Path(args["report_directory"]).expanduser() if args["report_directory"] else None
        page, drawing_error = write_comparison(records, logbook, target, time.time(), adapt_commands)
        findings = []
    else:
        written = write_report(records[0], logbook, time.time(), adapt_commands)
        page, drawing_error, findings = written.page, written.drawing_error, written.report["findings"]
    Display().display(f"report: {page}" + (f" (without plots: {drawing_error})" if drawing_error else ""))
    bundle = pack(records) if args["bundle"] else ""
    return {
        "changed": True,
        "report": str(page),
        "bundle": bundle,
        "findings": findings,
        "plot_error": drawing_error,
    }


def pack(records: list[Path]) -> str:
    """Write an archive of a run for sharing when asking for help, and return its path."""
    if len(records) > 1:
        raise AnsibleActionFail("an archive contains one run: omit bundle, or name a single run")
    path = write_bundle(records[0])
    Display().display(
        f"bundle: {path} (secrets are removed, but names and paths are not; review it before you share it)"
    )
    return str(path)


def run_option(runs: list[str]) -> str:
    """Return the command-line option for naming runs."""
    given_runs = [run for run in runs if run]
    return (
        ""
        if not given_runs
        else f" -e run_id={given_runs[0]}"
        if len(given_runs) == 1
        else f" -e runs={','.join(given_runs)}"
    )


def error_text(problem: Exception) -> str:
    """Format an exception as a message."""
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}; free up space there, or take ownership of the directory"
    return str(problem) or type(problem).__name__
