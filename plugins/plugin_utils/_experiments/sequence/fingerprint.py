# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings that all launches of a sequence share: job and nodes, to tell its results from those of another job.

Private to this collection, controller only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

OF_A_LAUNCH = ("job", "nnodes", "nodes", "nproc_per_node", "fitted", "debug")  # besides launch_*
NOT_COMPARED = ("launch_run_id", "launch_time")  # launch_time: when a machine was started, set by amazon.aws.aws_ec2


def common_settings(task_vars: Mapping[str, Any], group: str) -> str:
    """The settings as a text, which may hold secrets. task_vars: of the host that launches, untemplated."""
    members = task_vars["groups"].get(group, [])
    first = task_vars["hostvars"].raw_get(members[0]) if members else {}
    return json.dumps([of_a_launch(task_vars), of_a_launch(first), sorted(members)], default=str)


def of_a_launch(variables: Mapping[str, Any]) -> Any:
    """The variables that a launch reads."""
    return in_order(
        {
            name: value
            for name, value in variables.items()
            if name in OF_A_LAUNCH or (name.startswith("launch_") and name not in NOT_COMPARED)
        }
    )


def in_order(value: Any) -> Any:
    """A value with its mappings as lists of pairs sorted by key, keys of any type."""
    if isinstance(value, Mapping):
        return sorted([str(key), in_order(one)] for key, one in value.items())
    return [in_order(one) for one in value] if isinstance(value, (list, tuple)) else value


def sealed(salt: str, *settings: Any) -> str:
    """A salted SHA-256 hash of settings: it shows whether they differ, without revealing them."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()
