# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_diff: shows the differences between two runs. Connects to no node."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import find_record, records_directory
from ansible_collections.muster.training.plugins.plugin_utils._record.run_diff import (
    code_changes,
    input_differences,
    read_run,
    render_diff,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose_report
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "default": ""},
    "other_run": {"type": "str", "default": ""},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "lines": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Action plugin that reads records on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the differences between two runs, and how they ended."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        directory = records_directory(args["directory"], args["group"], task_vars)
        runs = [read_run(find_record(directory, args["run_id"]))]
        like = clean_text((runs[0].snapshot or {}).get("like"), 80)
        if args["other_run"]:
            runs.append(read_run(find_record(directory, args["other_run"])))
        elif like:
            runs.insert(0, read_run(find_record(directory, like)))
        else:
            raise UserError(
                adapt_commands(
                    "name two runs: ansible-playbook diff.yml -e run_id=A -e other_run=B (if A repeats B, "
                    "B may be omitted)"
                )
            )
        reports = [compose_report(read_record(run.record, run.record.name), time.time()) for run in runs]
        Display().display(adapt_commands(render_diff(runs, reports, args["lines"])))
        return {
            "changed": False,
            "runs": [run.record.name for run in runs],
            "differences": [row._asdict() for row in input_differences(runs, reports)],
            "files": [change.name for change in code_changes(runs)],
        }
