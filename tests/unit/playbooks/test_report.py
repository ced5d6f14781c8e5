# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.yml, and the report that every run writes at its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.plugins.plugin_utils.report.records import write_record
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed

PLAYBOOK = "ansible-playbook muster.training.{} -i machines.yml"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Create the collection, an inventory of two local nodes, and a successful and a failing job."""
    two_nodes(tmp_path, 7, launch_launcher="env", launch_skip=[])
    (tmp_path / "good.py").write_text("print('MUSTER_RESULT {\"accuracy\": 0.5}')\n")
    (tmp_path / "bad.py").write_text("raise ValueError('boom <script>')\n")
    yield tmp_path
    for name in ("local0", "local1"):
        for run in ("failing", "detached"):
            run_stop.stop({"run_id": run, "runs_directory": f"{tmp_path}/nodes", "node": name, "check": False})


@pytest.mark.one_core  # needs the plotting library
def test_report_covers_latest_run_or_compares_several(directory: Path) -> None:
    runs = directory / "runs"
    for name in ("first", "second"):
        write_record(runs, name, nodes=2)
    (runs / "latest").symlink_to("second")
    completed = typed(directory, [*PLAYBOOK.format("report").split(), "-e", "fetch=false"])
    assert completed.returncode == 0, completed.stdout
    assert f"\nreport: {runs}/second/report.html\n" in completed.stdout
    assert not (runs / "first" / "report.html").exists()
    assert "](../runs/second/report.html)" in next((directory / "logbook").glob("*second.md")).read_text()
    completed = typed(
        directory, [*PLAYBOOK.format("report").split(), "-e", "runs=fir,second", "-e", "report_directory=mine"]
    )
    assert completed.returncode == 0, completed.stdout
    assert "\nreport: " in completed.stdout and (directory / "mine" / "report.html").exists()
    completed = typed(directory, [*PLAYBOOK.format("report").split(), "-e", "run_id=third"])
    assert completed.returncode == 2 and "name a run launched from this machine, as in" in completed.stdout, (
        completed.stdout
    )


@pytest.mark.one_core
def test_failed_run_writes_its_report_and_still_fails(directory: Path) -> None:
    job = ["-e", "run_id=failing", "-e", f"launch_script={directory}/bad.py"]
    completed = typed(directory, [*PLAYBOOK.format("launch").split(), *job])
    page = directory / "runs" / "failing" / "report.html"
    assert completed.returncode == 2, completed.stdout
    assert completed.stdout.count(f"\nreport: {page}") == 1, completed.stdout
    assert completed.stdout.index("run failing failed after") < completed.stdout.index("\nreport: ")
    assert "ValueError: boom &lt;script&gt;" in page.read_text()
    # an unwritable logbook is only reported
    shutil.rmtree(directory / "logbook")
    (directory / "logbook").write_text("")
    again = [word.replace("failing", "failing-again").replace("bad.py", "good.py") for word in job]
    completed = typed(directory, [*PLAYBOOK.format("launch").split(), *again])
    assert completed.returncode == 0, completed.stdout
    assert "the report for failing-again could not be created" in " ".join(completed.stdout.split())


@pytest.mark.thorough  # unit/plugins/plugin_utils/report; test_record.py has such a run
def test_status_writes_the_report_of_a_detached_run_once(directory: Path) -> None:
    job = ["-e", "run_id=detached", "-e", "detach=true", "-e", f"launch_script={directory}/good.py"]
    completed = typed(directory, [*PLAYBOOK.format("launch").split(), *job])
    assert completed.returncode == 0 and "\nreport: " not in completed.stdout, completed.stdout
    record = directory / "runs" / "detached"
    for _attempt in range(50):  # each takes several seconds
        completed = typed(directory, PLAYBOOK.format("status").split())
        if (record / "result.json").exists():
            break
    assert completed.stdout.count(f"\nreport: {record}/report.html") == 1, completed.stdout
    assert json.loads((record / "report.json").read_text())["state"] == "succeeded"
    completed = typed(directory, [*PLAYBOOK.format("status").split(), "-e", "run_id=deta"])
    assert completed.returncode == 0 and "detached" in completed.stdout, "the beginning of its name will do"
    assert "\nreport: " not in completed.stdout, "once is enough"
