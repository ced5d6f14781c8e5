# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profile of a run, from profile.json in its record, as tables for the report."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    RANK,
    TIME,
    Between,
    Maybe,
    conforms,
)
from ansible_collections.muster.training.plugins.plugin_utils._profile.summary import (
    SECONDS,
    format_count,
    format_seconds,
    format_share,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ProfileSection

RANK_HEADER = ["rank", "node", "step", "in collectives", "waiting for others", "GPU busy"]
OPERATION_HEADER = ["operation", "device", "time in a step", "calls in a step"]
MAX_ROWS = 64
SCHEMA = {
    "time": TIME,
    "timeline": str,
    "ranks": [
        {
            "rank": RANK,
            "node": str,
            "steps": RANK,
            "step_seconds": SECONDS,
            "collective_seconds": SECONDS,
            "waiting_seconds": Maybe(SECONDS),
            "gpu_seconds": SECONDS,
        }
    ],
    "operations": [{"name": str, "device": str, "count": Between(0, 1e12), "seconds": SECONDS}],
    "late": [RANK],
}


def profile_section(profile: Any) -> ProfileSection | None:
    """Return the tables for a profile; None if there is none."""
    if not conforms(profile, SCHEMA) or not profile["ranks"]:
        return None
    ranks = []
    for entry in profile["ranks"][:MAX_ROWS]:
        whole = entry["step_seconds"]
        ranks.append(
            [
                str(entry["rank"]),
                clean_text(entry["node"], 100),
                format_seconds(whole),
                format_share(entry["collective_seconds"], whole),
                format_share(entry.get("waiting_seconds"), whole),
                format_share(entry["gpu_seconds"] or None, whole),
            ]
        )
    operations = [
        [
            clean_text(entry["name"], 120),
            clean_text(entry["device"], 10).upper(),
            format_seconds(entry["seconds"]),
            format_count(entry["count"]),
        ]
        for entry in profile["operations"][:MAX_ROWS]
    ]
    return {
        "time": profile["time"],
        "steps": profile["ranks"][0]["steps"],
        "timeline": clean_text(profile["timeline"], 200),
        "ranks": ranks,
        "operations": operations,
        "late": ", ".join(map(str, profile["late"][:MAX_ROWS])),
    }
