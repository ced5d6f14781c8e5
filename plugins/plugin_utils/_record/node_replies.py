# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a node's replies that describe its run or list its runs. A job or the node may have put anything into them."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.documents import Data
from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import RANK_NUMBER
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    NAME,
    PATH,
    RANK,
    RUN_ID,
    RUN_STATES,
    STATUS,
    TIME,
    Between,
    Maybe,
    conforms,
    validate_report,
    validate_result,
)

STATES = (*RUN_STATES, "died")
AGE = Between(0, 1e12)  # seconds since a TIME, which may have been taken while the node's clock was wrong
VALUE = Maybe(Between(0, 1e15))
READ = {
    "run_id": RUN_ID,
    "state": STATES,
    "message": str,
    "directory": PATH,
    "started": Maybe(TIME),
    "hub": Maybe(RANK),
    "report": Maybe(dict),
    "job_results": Maybe(dict),
}
RUN_STATUS = {
    **READ,
    "node_rank": RANK,
    "ranks": [RANK],
    "since": TIME,
    "last_line": str,
    "seconds_since_output": Maybe(AGE),
    "gpus": Maybe(
        {
            "age": AGE,
            "devices": [{"utilization_percent": VALUE, "memory_used_mib": VALUE, "memory_total_mib": VALUE}],
        }
    ),
    "ended_ranks": dict,
    "health": Maybe([str]),
    "job": Maybe(str),
    "attempt": Maybe(range(1000)),
    "lost": Maybe(str),
    "missing": STATUS["missing"],
}
LISTED_RUN = {
    "run_id": RUN_ID,
    "nodes": [NAME],
    "state": STATES,
    "alive": bool,
    "started": TIME,
    "size": range(2**80),  # in bytes; a sparse file alone may have 2**63 - 1
    "job": Maybe(str),
    "project": Maybe(str),
    "outcome": Maybe(str),
}


def validate_run(value: Any) -> Data | None:
    """Return a run as a node's status describes it, with a valid report and result; None if it is invalid."""
    if not conforms(value, READ):
        return None
    report = value.get("report")
    return {
        **value,
        "report": validate_report(report) if report is not None else None,
        "result": validate_result(value.get("result")),
    }


def is_run_status(value: Any) -> bool:
    """Return whether a value describes a run as _run/status.py does."""
    return conforms(value, RUN_STATUS) and all(
        RANK_NUMBER.fullmatch(str(rank)) and conforms(age, AGE) for rank, age in value["ended_ranks"].items()
    )


def is_run_list(value: Any) -> bool:
    """Return whether a value lists a node's runs as _run/list_runs.py does."""
    return conforms(value, [LISTED_RUN])
