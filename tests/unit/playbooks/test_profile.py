# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""profile.yml for a gloo job on two nodes: table, timeline and report; the job continues."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.supervised import eventually
from tests.unit.two_nodes import state_of, stop_run, two_nodes
from tests.unit.typed import CHECKOUT, typed

pytest.importorskip("torch")


@pytest.mark.one_core
def test_a_running_job_is_profiled_and_the_late_rank_is_named(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "tests" / "jobs" / "profiled.py", tmp_path / "job.py")
    settings: dict[str, Any] = {
        "launch_launcher": "env",
        "launch_python": sys.executable,
        "launch_script": f"{tmp_path}/job.py",
        "launch_args": ["1", "0.5", str(tmp_path / "over")],
        "launch_report": False,
    }
    two_nodes(tmp_path, 39, **settings)
    launch = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml"]
    launched = typed(tmp_path, [*launch, "-e", "detach=true", "-e", "run_id=first"])
    assert launched.returncode == 0, launched.stdout
    log = tmp_path / "nodes" / "first" / "node0" / "launcher.log"
    record = tmp_path / "runs" / "first"
    try:
        eventually(lambda: log.exists() and "step 1:" in log.read_text(), 400)
        profile = ["ansible-playbook", "muster.training.profile", "-i", "machines.yml", "-e", "profile_steps=3"]
        completed = typed(tmp_path, profile)
        assert completed.returncode == 0, completed.stdout
        assert "2 ranks, 3 steps of" in completed.stdout
        assert "the other ranks wait for rank 1" in completed.stdout
        assert json.loads((record / "profile.json").read_text())["late"] == [1]
        timeline = json.loads(gzip.decompress((record / "profiles" / "timeline.json.gz").read_bytes()))
        assert {event["pid"] // 10 for event in timeline["traceEvents"]} == {0, 1}
        refused = typed(tmp_path, [*profile, "-e", "profile_ranks=one"])
        assert (
            refused.returncode == 2
            and "profile_ranks is 'one'. Use numbers and ranges of ranks: ansible-playbook" in refused.stdout
        )
        (tmp_path / "over").touch()
        eventually(lambda: state_of(tmp_path, "first") == "succeeded", 400)
        report = typed(tmp_path, ["ansible-playbook", "muster.training.report", "-i", "machines.yml"])
        assert report.returncode == 0, report.stdout
        page = (record / "report.html").read_text()
        assert "The other ranks wait for rank 1." in page and "waiting for others" in page
    finally:
        stop_run(tmp_path, "first")
