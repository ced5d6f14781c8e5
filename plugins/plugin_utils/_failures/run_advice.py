# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adapt the explanation of a failure to its run: its start directory, and a Python in which site.yml installs
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation, clean_line
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import to_mapping
from ansible_collections.muster.training.plugins.plugin_utils._software.user_python import (
    install_with_pip,
    name_missing_package,
    user_python,
)

START = "start at launch_working_directory"
MAX_PATH = 300  # characters
MAX_ERROR = 2000  # number of characters of an error to search for a module


def for_run(explanation: Explanation | None, plan: Mapping[str, Any], error: str = "") -> Explanation | None:
    """Return an explanation with the run's start directory and the user's own Python. error: the explained error."""
    return None if explanation is None else add_directory(use_user_python(explanation, plan, error), plan)


def add_directory(explanation: Explanation, plan: Mapping[str, Any]) -> Explanation:
    """Name the directory that relative paths are resolved against."""
    directory = plan.get("working_directory")
    if not isinstance(directory, str) or not directory.startswith("/"):
        return explanation
    start = f"start at {clean_line(directory[:MAX_PATH])}"
    cause, remedy = (explanation[key].replace(START, start) for key in ("cause", "remedy"))
    return {**explanation, "cause": cause, "remedy": remedy}


def use_user_python(explanation: Explanation, plan: Mapping[str, Any], error: str) -> Explanation:
    """Install packages into the Python that the user has set with launch_python, where site.yml installs nothing."""
    options = to_mapping(plan.get("options"))
    python = user_python(options.get("launch_python"), options.get("launch_image"))
    remedy = install_with_pip(explanation["remedy"], python)
    if explanation["id"] == "module-missing":
        remedy = name_missing_package(remedy, error[:MAX_ERROR])
    return {**explanation, "remedy": remedy}
