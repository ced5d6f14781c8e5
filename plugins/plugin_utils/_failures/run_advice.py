# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adapt the explanation of a failure to its run: its start directory, and a Python in which site.yml installs
nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation, clean_line
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import to_mapping

INSTALLS = re.compile(r"ansible-playbook site\.yml --tags (?:\w+,)*(?:python_env|pytorch|deepspeed)\b")
START = "start at launch_working_directory"
MAX_PATH = 300  # characters


def for_run(explanation: Explanation | None, plan: Mapping[str, Any]) -> Explanation | None:
    """Return an explanation with the run's start directory, and with advice on the user's own Python."""
    return None if explanation is None else add_directory(add_python_advice(explanation, plan), plan)


def add_directory(explanation: Explanation, plan: Mapping[str, Any]) -> Explanation:
    """Name the directory that relative paths are resolved against."""
    directory = plan.get("working_directory")
    if not isinstance(directory, str) or not directory.startswith("/"):
        return explanation
    start = f"start at {clean_line(directory[:MAX_PATH])}"
    cause, remedy = (explanation[key].replace(START, start) for key in ("cause", "remedy"))
    return {**explanation, "cause": cause, "remedy": remedy}


def own_python(plan: Mapping[str, Any]) -> str:
    """Return the interpreter that the user has set with launch_python, or ""; also "" if the run uses an image.

    The default is a list of the environments of site.yml, separated by colons.
    """
    options = to_mapping(plan.get("options"))
    python = options.get("launch_python")
    if not isinstance(python, str) or not python.startswith("/") or ":" in python or options.get("launch_image"):
        return ""
    return clean_line(python[:MAX_PATH])


def add_python_advice(explanation: Explanation, plan: Mapping[str, Any]) -> Explanation:
    """Extend a remedy that installs packages with how to install them into the user's own Python."""
    python = own_python(plan)
    if not python or INSTALLS.search(explanation["remedy"]) is None:
        return explanation
    advice = (
        f"This run used {python} (launch_python), so that command does not install anything for it. Instead, run "
        f"`{shlex.quote(python)} -m pip install PACKAGE` on each node"
    )
    return {**explanation, "remedy": f"{explanation['remedy']}. {advice}"}
