# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Define and validate the options of a search for the largest batch size."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import (
    PLACEHOLDER,
    has_placeholder,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID

SEARCH_OPTIONS: dict[str, dict[str, Any]] = {
    "start": {"type": "int", "default": 8},
    "multiple": {"type": "int", "default": 8},
    "max": {"type": "int", "default": 4096},
    "margin": {"type": "float", "default": 0.05},
    "probe_timeout": {"type": "float", "default": 600.0},
}


def find_option_error(args: dict[str, Any]) -> str:
    """Return the first error in the options, or an empty string."""
    for name in ("args", "confirm_args"):
        if not isinstance(args[name], (str, list)):
            return f"fit_{name} is {type(args[name]).__name__}, but must be a list of arguments or a string"
    if not has_placeholder(args["args"]):
        return (
            f"fit_args, the script's arguments, do not contain {PLACEHOLDER}: put it where the script takes its "
            'batch size, such as ansible-playbook fit.yml -e nnodes=2 -e \'{"launch_script": "train.py", '
            f'"fit_args": ["--batch_size", "{PLACEHOLDER}", "--max_steps", "20"]}}\''
        )
    if args["confirm_args"] and not has_placeholder(args["confirm_args"]):
        return f"fit_confirm_args does not contain {PLACEHOLDER}, so it would confirm nothing"
    if not 1 <= args["start"] <= args["max"]:
        return f"fit_start is {args['start']}, but must be between 1 and fit_max, which is {args['max']}"
    if args["multiple"] < 1 or not 0 <= args["margin"] < 1:
        return (
            f"fit_multiple is {args['multiple']}, and must be at least 1; fit_margin is {args['margin']:g}, and must "
            "be at least 0 and below 1"
        )
    if not SAFE_RUN_ID.match(args["run_id"]) or len(args["run_id"]) > 40:
        return (
            "run_id is not a valid name: use at most 40 characters (letters, digits, '.', '_' and '-'), of which the "
            "first is a letter or digit"
        )
    return ""
