# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all launches of a sequence share: the job and its nodes, to tell a result from that of another job.

Private to this collection, controller only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

OF_A_LAUNCH = ("job", "nnodes", "nodes", "nproc_per_node", "fitted", "debug")  # besides launch_*
NOT_COMPARED = ("launch_run_id", "launch_time")  # the second is that of amazon.aws.aws_ec2, when a machine was started


def common_settings(task_vars: Mapping[str, Any], group: str) -> str:
    """The settings as a text, which may hold secrets. task_vars: of the host that launches, values as they stand."""
    members = task_vars["groups"].get(group, [])
    first = task_vars["hostvars"].raw_get(members[0]) if members else {}
    return json.dumps([of_a_launch(task_vars), of_a_launch(first), sorted(members)], default=str)


def of_a_launch(variables: Mapping[str, Any]) -> Any:
    """Those of the variables that a launch reads."""
    return in_order(
        {
            name: value
            for name, value in variables.items()
            if name in OF_A_LAUNCH or (name.startswith("launch_") and name not in NOT_COMPARED)
        }
    )


def in_order(value: Any) -> Any:
    """A value with its mappings as pairs in the order of their keys, whatever these are."""
    if isinstance(value, Mapping):
        return sorted([str(key), in_order(one)] for key, one in value.items())
    return [in_order(one) for one in value] if isinstance(value, (list, tuple)) else value


def sealed(salt: str, *settings: Any) -> str:
    """What differs where settings do, and from which nobody reads them."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()
