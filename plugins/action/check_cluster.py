# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module check_cluster. Opens no connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import (
    Finding,
    count_severities,
    render_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import (
    THRESHOLDS_SPEC,
    collect_replies,
    find_local_nodes,
    run_checks,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import RankTable, RankTableError
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, format_result, run_query
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import (
    parse_arguments,
    parse_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import (
    CHECKED_OPTIONS,
    DEFAULTS,
    JOB_OPTIONS,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.read_job import read_job
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import file_of, read_entries

ARGUMENT_SPEC = {
    **CHECKED_OPTIONS,
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "facts": {"type": "dict", "default": {}},
    "facts_from": {"type": "str", "default": ""},
    "nproc_per_node": JOB_OPTIONS["nproc_per_node"],
    "names": {"type": "bool", "default": True},
    "group": {"type": "str", "default": "training"},
    "code": {"type": "dict", "default": {}},
    "code_skip_reason": {"type": "str", "choices": ["", "as_is", "later", "refused", "in_use"], "default": ""},
    "skip": {"type": "list", "elements": "str", "default": []},
    "thresholds": {"type": "dict", "apply_defaults": True, "options": THRESHOLDS_SPEC},
    "json_file": {"type": "path"},
    "jmespath": {"type": "str", "default": ""},
}
# Fields of a job that no check uses: launch_plan's defaults.
JOB_DEFAULTS = {**DEFAULTS, "run_id": "preflight"}


def format_count(number: int, noun: str) -> str:
    """Format a number of things, such as "2 errors"."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def render(table: RankTable, findings: list[Finding]) -> str:
    """Render the findings and a summary for a terminal."""
    counts = count_severities(findings)
    total = (
        f"preflight on {format_count(table.nnodes, 'node')}: {format_count(counts['error'], 'error')}, "
        f"{format_count(counts['warning'], 'warning')}"
    )
    return f"{render_table(findings)}\n\n{total}" if findings else total


class ActionModule(ActionBase):
    """Action plugin that judges nodes by their facts."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show all findings and return them."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        args["facts"] = collect_replies(args, task_vars.get("hostvars"))
        try:
            arguments = {**JOB_DEFAULTS, **args, "args": parse_arguments(args["args"], self._loader)}
            arguments["local_nodes"] = find_local_nodes(args["nodes"], task_vars.get("hostvars"))
            arguments["bad_nodes"] = read_entries(file_of(task_vars, args["group"]))
            arguments["environment"] = parse_environment(args["environment"], self._loader)
            table, findings = run_checks(
                arguments, read_job(arguments, target_needed=False), names_needed=args["names"]
            )
        except RankTableError as error:
            raise AnsibleActionFail(f"the nodes are not a valid cluster:\n{error}") from error
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        counts = count_severities(findings)
        result: dict[str, Any] = {
            "changed": False,
            "error_count": counts["error"],
            "warning_count": counts["warning"],
            "findings": [finding.as_dict() for finding in findings],
        }
        document: Any = {"nodes": table.as_dicts(), **result}
        try:
            document = run_query(args["jmespath"], document) if args["jmespath"] else document
        except QueryError as error:
            raise AnsibleActionFail(str(error)) from None
        Display().display(format_result(document) if args["jmespath"] else render(table, findings))
        if args["json_file"]:
            try:
                Path(args["json_file"]).write_text(format_result(document) + "\n", encoding="utf-8")
            except OSError as error:
                raise AnsibleActionFail(f"cannot write {args['json_file']}: {error.strerror}") from error
        return result
