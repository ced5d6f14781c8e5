# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A launch ends correctly even if its job modifies the run directory or nothing reads its output."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually
from tests.unit.two_nodes import state_of, two_nodes
from tests.unit.typed import own_environment, typed

LAUNCH = "ansible-playbook muster.training.launch -i machines.yml -e run_id=first"
ROLL = {"ANSIBLE_STDOUT_CALLBACK": "muster.training.roll"}
WAIT = """
import pathlib, time
print("it waits", flush=True)
while not pathlib.Path("{directory}/end").exists():
    print("step", flush=True)
    time.sleep(0.2)
"""
REMOVE = """
import os, pathlib, shutil, time
run = pathlib.Path(os.environ["MUSTER_RUN_DIRECTORY"])
time.sleep(0.5)
shutil.rmtree(run)
while not (run / "plan.json").exists():
    time.sleep(0.1)
"""
FAIL_WITH_PIPES = """
import os, pathlib, sys
run = pathlib.Path(os.environ["MUSTER_RUN_DIRECTORY"])
for name in ("supervisor.json", "logs.tar.gz", "job_results.jsonl"):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
sys.exit("the job has failed")
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Create the collection and an inventory of two local nodes."""
    two_nodes(tmp_path, 57, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/job.py")
    yield tmp_path
    for name in ("local0", "local1"):
        run_stop.stop({"run_id": "first", "runs_directory": f"{tmp_path}/nodes", "node": name, "check": False})


@pytest.mark.one_core
def test_launch_whose_output_is_not_read_ends_and_the_run_continues(directory: Path) -> None:
    (directory / "job.py").write_text(WAIT.replace("{directory}", str(directory)))
    with subprocess.Popen(
        LAUNCH.split(),
        cwd=directory,
        env={**own_environment(directory), **ROLL},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as launch:
        assert launch.stdout is not None
        while "it waits" not in launch.stdout.readline():
            assert launch.poll() is None
        launch.stdout.close()
        launch.wait(timeout=300)
    assert state_of(directory, "first") == "running"
    (directory / "end").touch()
    eventually(lambda: state_of(directory, "first") == "succeeded")


@pytest.mark.thorough  # unit/plugins/module_utils/supervisor covers the supervisor
@pytest.mark.one_core
def test_launch_continues_when_its_job_removes_the_run_directory(directory: Path) -> None:
    (directory / "job.py").write_text(REMOVE)
    launch = typed(directory, LAUNCH.split(), **ROLL)
    assert "[muster] the job on local0 removed, replaced or locked files in its run directory" in launch.stdout
    assert launch.returncode == 0 and "run first succeeded" in launch.stdout, launch.stdout


@pytest.mark.one_core
def test_launch_ends_when_its_job_replaces_files_with_pipes(directory: Path) -> None:
    (directory / "job.py").write_text(FAIL_WITH_PIPES)
    launch = typed(directory, LAUNCH.split(), **ROLL)
    assert launch.returncode == 2 and "the job has failed" in launch.stdout, launch.stdout
    assert (directory / "runs" / "first" / "logs" / "node0" / "launcher.log").exists()
