# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of a project for the start page, from the records on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.find_runs import modification_time
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import describe_job
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_timestamp,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import LATEST

MAX_RUNS = 200  # the newest
OPEN = "open"  # the state of a run whose record does not say how it ended


class RunList:
    """Lists the records in a directory; a record is read again only after it has changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rows: dict[str, tuple[tuple[float, float], dict[str, Any]]] = {}

    def names(self) -> list[str]:
        """Return the names of the newest runs, newest first."""
        try:
            names = [entry.name for entry in os.scandir(self.directory) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        times = {name: modification_time(self.directory / name / "plan.json") for name in names if is_run(name)}
        return sorted((name for name in times if times[name]), key=lambda name: times[name], reverse=True)[:MAX_RUNS]

    def list(self) -> list[dict[str, Any]]:
        """Return a row for each run, newest first."""
        rows = {}
        for name in self.names():
            record = self.directory / name
            times = (modification_time(record / "plan.json"), modification_time(record / "result.json"))
            entry = self.rows.get(name)
            rows[name] = entry if entry is not None and entry[0] == times else (times, self.row(name, times[0]))
        self.rows = rows
        return [row for _times, row in rows.values()]

    def row(self, name: str, opened: float) -> dict[str, Any]:
        """Return the table row for a run."""
        plan, result = self.read(name)
        return {
            "run_id": name,
            "job": describe_job(plan),
            "nodes": len(to_list(plan.get("nodes"))),
            "world_size": to_int(plan.get("world_size")),
            "started": to_timestamp(result.get("started")) or opened,
            "ended": to_timestamp(result.get("ended")),
            "state": clean_text(result.get("state"), 40) or OPEN,
            "reason": clean_text(result.get("reason"), 300),
            "report": str(self.directory / name / "report.html")
            if (self.directory / name / "report.html").is_file()
            else "",
        }

    def read(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the plan of a run, and how it ended; empty mappings if they are missing or damaged."""
        files = RecordFiles(self.directory / name)
        return to_mapping(files.read_json("plan.json")), to_mapping(files.read_json("result.json"))

    def has(self, name: str) -> bool:
        """Return whether a run has a record."""
        return is_run(name) and (self.directory / name / "plan.json").is_file()


def is_run(name: str) -> bool:
    """Return whether a directory may be the record of a run."""
    return name != LATEST and SAFE_RUN_ID.match(name) is not None
