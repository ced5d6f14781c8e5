# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fingerprint the settings that all launches in a sequence share, to tell the sequence's results apart from others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

LAUNCH_VARIABLES = ("job", "nnodes", "nodes", "nproc_per_node", "gpus", "fitted", "debug")  # in addition to launch_*
# launch_time: when a machine was started; set by amazon.aws.aws_ec2
IGNORED_VARIABLES = ("launch_run_id", "launch_time")


def common_settings(task_vars: Mapping[str, Any], group: str) -> str:
    """Return the settings as a text, which may contain secrets. task_vars: the launching host's, not yet templated."""
    members = task_vars["groups"].get(group, [])
    first_node = task_vars["hostvars"].raw_get(members[0]) if members else {}
    return json.dumps([launch_variables(task_vars), launch_variables(first_node), sorted(members)], default=str)


def launch_variables(variables: Mapping[str, Any]) -> Any:
    """Return the variables that a launch reads."""
    return canonicalize(
        {
            name: value
            for name, value in variables.items()
            if name in LAUNCH_VARIABLES or (name.startswith("launch_") and name not in IGNORED_VARIABLES)
        }
    )


def canonicalize(value: Any) -> Any:
    """Return a value with each mapping replaced by a list of pairs sorted by key, where keys can be of any type."""
    if isinstance(value, Mapping):
        return sorted([str(key), canonicalize(item)] for key, item in value.items())
    return [canonicalize(item) for item in value] if isinstance(value, (list, tuple)) else value


def salted_hash(salt: str, *settings: Any) -> str:
    """Return a salted SHA-256 hash of the settings, which shows whether they differ without revealing them."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()
