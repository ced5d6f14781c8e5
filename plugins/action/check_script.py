# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module check_script. Connects to nothing and does not execute the script."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._script_check.check import check_script, uses_torch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.project import ScriptError
from ansible_collections.muster.training.plugins.plugin_utils._script_check.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._script_check.render import render_findings, summarize
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "script": {"type": "str", "required": True},
    "directory": {"type": "str", "default": ""},
    "launcher": {"type": "str", "default": "torchrun"},
    "skip": {"type": "list", "elements": "str", "default": []},
}


def candidate_directories(directory: str, extra_vars: Iterable[Any]) -> list[Path]:
    """Return the directories that may contain the script: the job file's directory, the code directory and the current
    directory.
    """
    job_directories = [Path(str(value)[1:]).expanduser().parent for value in extra_vars if str(value).startswith("@")]
    bases = [*job_directories, Path.cwd()]
    code = Path(directory).expanduser()
    directories = [*(base / code for base in bases), *bases] if directory else bases
    return list(dict.fromkeys(Path(os.path.normpath(path.absolute())) for path in directories))


def find_script(script: str, directories: Sequence[Path]) -> Path:
    """Return the path of the script. Raise UserError if it does not exist."""
    if not script:
        raise UserError("no script is set: run ./muster check train.py or ./muster check job.yml")
    path = Path(script).expanduser()
    for candidate in [path] if path.is_absolute() else [directory / path for directory in directories]:
        if candidate.is_file():
            return candidate
    where = "" if path.is_absolute() else f" in {', '.join(map(str, directories))}"
    raise UserError(f"{script} does not exist{where}. Correct the path: ./muster check PATH")


class ActionModule(ActionBase):
    """Reads files on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the script, show the findings and return them."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        unknown = [name for name in args["skip"] if name not in {rule.id for rule in RULES}]
        if unknown:
            raise UserError(f"unknown rule: {', '.join(unknown)}. Valid rules: {', '.join(rule.id for rule in RULES)}")
        directories = candidate_directories(args["directory"], context.CLIARGS.get("extra_vars") or ())
        script = find_script(args["script"], directories)
        try:
            modules, findings = check_script(
                script, [path for path in directories if path in script.parents], args["launcher"], args["skip"]
            )
        except ScriptError as error:
            raise UserError(str(error)) from None
        number = f"{len(modules)} file{'' if len(modules) == 1 else 's'}"
        if findings:
            Display().display(render_findings(findings))
        if uses_torch(modules):
            Display().display(f"{args['script']} on several nodes: {summarize(findings)} in {number}")
        else:
            Display().display(f"{args['script']} does not import torch: nothing to check")
        return {
            "changed": False,
            "findings": [finding.as_dict() for finding in findings],
            "files": [module.path for module in modules],
            "error_count": sum(finding.severity == "error" for finding in findings),
        }
