# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rehearse.yml on two local nodes: a job that resumes, a job that does not resume, and an interrupted rehearsal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.two_nodes import two_nodes, wait_until_it_runs
from tests.unit.typed import begun, killed, typed

pytestmark = pytest.mark.one_core  # needs ansible-runner

# The loss decreases with each step, and the checkpoint contains the step. If the file "broken" exists, the checkpoint
# is not loaded. A resumed job waits while the file "wait" exists; it then overwrites the checkpoint of the first job.
JOB = """
import json, os, sys, time

steps, place, here = int(sys.argv[1]), sys.argv[2], os.path.dirname(os.path.abspath(__file__))
first = 0
while "--resume" in sys.argv and os.path.exists(os.path.join(here, "wait")):
    time.sleep(0.1)
if "--resume" in sys.argv and not os.path.exists(os.path.join(here, "broken")):
    with open(sys.argv[4]) as stream:
        first = json.load(stream)["step"]
if os.environ["NODE_RANK"] == "0":
    for step in range(first + 1, steps + 1):
        print("MUSTER_RESULT " + json.dumps({"step": step, "loss": 4 * 0.9**step}), flush=True)
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "state.json"), "w") as stream:
        json.dump({"step": steps, "model": "x" * 100000}, stream)
    told = {"seconds_per_step": 2.0, "checkpoint": os.path.join(place, "state.json"), "checkpoint_seconds": 4.0}
    print("MUSTER_RESULT " + json.dumps(told), flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory of two nodes, and a job."""
    two_nodes(tmp_path, 12, launch_launcher="env", launch_report=False, node_price_per_hour=1.5)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def rehearse_command(directory: Path, *more: str) -> list[str]:
    location = f"{directory}/checkpoints/{{name}}"
    job = {
        "launch_script": f"{directory}/job.py",
        "rehearse_args": ["{steps}", location],
        "rehearse_resume_args": ["{steps}", location, "--resume", "{checkpoint}"],
        "rehearse_total_steps": 900,
        "rehearse_checkpoint_steps": 100,
    }
    return ["ansible-playbook", "muster.training.rehearse", "-i", "machines.yml", "-e", json.dumps(job), *more]


def test_job_that_resumes_is_approved(directory: Path) -> None:
    completed = typed(directory, rehearse_command(directory))
    assert completed.returncode == 0, completed.stdout
    assert "the second start continued the curve of the first" in completed.stdout
    assert "the whole job, 900 steps: about 0:30:36, 1.53 USD" in completed.stdout, completed.stdout
    assert "rehearsal rehearsal: go" in completed.stdout
    record = json.loads((directory / "runs" / "rehearsal" / "rehearsal.json").read_text())
    assert [start["run_id"] for start in record["starts"]] == ["rehearsal-all", "rehearsal-resumed"]
    assert record["starts"][1]["steps"][0] == 21 and record["checkpoint_bytes"] >= 100000 and record["go"] is True


@pytest.mark.thorough  # the test above, and test_sweep.py for an interrupted sequence
def test_killed_rehearsal_resumes_and_approves_a_job_that_resumes(directory: Path) -> None:
    (directory / "wait").touch()
    status = directory / "nodes" / "rehearsal-resumed" / "node1" / "status.json"
    process = begun(directory, rehearse_command(directory))
    try:
        wait_until_it_runs(directory, process, "rehearsal-resumed")
    finally:
        output = killed(process)
    assert json.loads(status.read_text())["state"] == "running", output
    (directory / "wait").unlink()
    completed = typed(directory, rehearse_command(directory))
    assert completed.returncode == 0, completed.stdout
    assert "rehearsal-resumed was still running when the rehearsal was interrupted: stopping it" in completed.stdout, (
        completed.stdout
    )
    assert json.loads(status.read_text())["state"] != "running"
    assert "the second start continued the curve of the first" in completed.stdout
    assert "the whole job, 900 steps: about 0:30:36, 1.53 USD" in completed.stdout, completed.stdout
    assert "rehearsal rehearsal: go" in completed.stdout
    record = json.loads((directory / "runs" / "rehearsal" / "rehearsal.json").read_text())
    assert [start["run_id"] for start in record["starts"]] == ["rehearsal-all-2", "rehearsal-resumed-2"]
    assert record["starts"][1]["steps"][0] == 21 and record["checkpoint_bytes"] >= 100000 and record["go"] is True
    completed = typed(directory, rehearse_command(directory))
    assert (
        completed.returncode == 2 and "rehearsal is a rehearsal that has ended: choose another name" in completed.stdout
    )


@pytest.mark.thorough  # unit/plugins/plugin_utils/experiments/rehearse covers the evaluation of starts
def test_job_that_does_not_resume_is_rejected(directory: Path) -> None:
    (directory / "broken").touch()
    completed = typed(directory, rehearse_command(directory))
    assert completed.returncode == 2, completed.stdout
    assert (
        "problem: the second start did not load the checkpoint: loss 3.6 at step 1, while the first" in completed.stdout
    )
    assert "rehearsal rehearsal: not yet" in completed.stdout


def test_missing_steps_placeholder_is_refused_before_anything_starts(directory: Path) -> None:
    completed = typed(directory, rehearse_command(directory, "-e", '{"rehearse_args": ["3"]}'))
    assert completed.returncode == 2 and "rehearse_args does not contain {steps}" in completed.stdout, completed.stdout
    assert not (directory / "runs").exists() and not (directory / "nodes").exists()
