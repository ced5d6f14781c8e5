# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a node's reply that describes its run. A job or the node may have put anything into it."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.documents import Data
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    PATH,
    RANK,
    RUN_ID,
    RUN_STATES,
    TIME,
    Maybe,
    conforms,
    validate_report,
    validate_result,
)

READ = {
    "run_id": RUN_ID,
    "state": (*RUN_STATES, "died"),
    "message": str,
    "directory": PATH,
    "started": Maybe(TIME),
    "hub": Maybe(RANK),
    "report": Maybe(dict),
    "job_results": Maybe(dict),
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
