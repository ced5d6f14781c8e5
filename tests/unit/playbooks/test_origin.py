# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record and the report of a run name its job file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed


@pytest.mark.one_core
def test_report_names_the_job_file(tmp_path: Path) -> None:
    two_nodes(tmp_path, 72)
    (tmp_path / "train.py").write_text("print('done')\n")
    (tmp_path / "jobs").mkdir()
    job = tmp_path / "jobs" / "toy.yml"
    job.write_text(f"job:\n  script: {tmp_path}/train.py\n  launcher: env\n")
    command = "ansible-playbook muster.training.launch -i machines.yml -e @jobs/toy.yml -e run_id=first"
    completed = typed(tmp_path, command.split())
    assert completed.returncode == 0, completed.stdout
    record = tmp_path / "runs" / "first"
    assert json.loads((record / "origin.json").read_text())["job_file"] == str(job)
    assert json.loads((record / "report.json").read_text())["origin"] == [f"job file: {job}"]
    assert f"<li>job file: {job}</li>" in (record / "report.html").read_text()
