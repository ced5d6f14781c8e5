"""Slurm chooses the nodes of a run: stand-ins for its programs, and the script that holds the nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import timeouts
from ansible_collections.muster.training.plugins.module_utils._slurm import allocation, queue

NODES = "".join(f"NodeName=gpu{number} NodeAddr=10.0.0.1{number} Gres=gpu:8 State=IDLE\n" for number in range(4))
CANDIDATES = [{"name": f"gpu{number}", "address": f"10.0.0.1{number}"} for number in range(3)]
PROGRAMS = {
    "scontrol": 'case "$*" in "show node"*) cat "$FAKE/nodes";; "show job"*) cat "$FAKE/job";; '
    '"show hostnames"*) cat "$FAKE/hostnames";; *) echo "$*" >> "$FAKE/updates";; esac',
    "sbatch": '[ -s "$FAKE/down" ] && { sed -i 1d "$FAKE/down"; echo "sbatch: error: Batch job submission failed: '
    'Unable to contact slurm controller (connect failure)" >&2; exit 1; }\n'
    'cat > "$FAKE/script"; echo "$*" > "$FAKE/options"; echo 12',
    "squeue": "echo 11; echo 12",
    "scancel": 'echo "$*" > "$FAKE/cancelled"',
    "srun": 'echo "srun in $SLURM_JOB_ID"',
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with the programs, their input and output files, and the user's home."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text(NODES)
    (tmp_path / "job").write_text("JobId=12 JobState=PENDING Reason=Resources StartTime=Unknown NodeList=(null)\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(queue, "SUBMIT_RETRY_INTERVAL", 0.01)
    return tmp_path


def call(operation: str, **request: Any) -> dict[str, Any]:
    return allocation.main({"operation": operation, "user": "", "options": {}, "nodes": CANDIDATES, **request})


def test_any_nodes_in_the_inventory_can_be_requested(fake: Path) -> None:
    assert call("allocate", count=2, options={"exclude": "gpu1", "partition": "gpu"}) == {"changed": True, "job": "12"}
    options = (fake / "options").read_text().split()
    assert {"--nodes=2", "--ntasks=2", "--exclusive", "--gres=gpu:8", "--partition=gpu"} <= set(options)
    assert "--exclude=gpu3,gpu1" in options, "gpu3 is not in the inventory, and the user excludes gpu1"
    assert not any(option.startswith("--nodelist") for option in options)


def test_more_nodes_than_the_inventory_has_are_refused(fake: Path) -> None:
    assert "the inventory has 3 nodes" in call("allocate", count=4)["error"]


def test_restarting_controller_receives_the_job_later(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake / "down").write_text("1\n2\n")
    assert call("allocate", count=1)["job"] == "12"
    (fake / "down").write_text("1\n2\n")
    monkeypatch.setattr(queue, "SUBMIT_RETRY_TIMEOUT", -1.0)
    assert "Unable to contact slurm controller" in call("allocate", count=1)["error"]


def test_launch_waits_until_the_job_has_nodes(fake: Path) -> None:
    first = call("wait", job="12", message="")
    assert first == {"state": "waiting", "message": "queued as Slurm job 12, position 2, reason Resources"}
    (fake / "job").write_text("JobState=RUNNING Reason=None NodeList=gpu[0,2] BatchHost=gpu0\n")
    (fake / "hostnames").write_text("gpu0\ngpu2\n")
    assert call("wait", job="12", message=first["message"]) == {
        "state": "allocated",
        "message": "",
        "nodes": [{"name": "gpu0", "address": "10.0.0.10"}, {"name": "gpu2", "address": "10.0.0.12"}],
        "batch": "gpu0",
    }
    (fake / "job").write_text("JobState=CANCELLED Reason=None\n")
    assert call("wait", job="12", message="") == {"state": "ended", "message": "Slurm job 12 ended in state CANCELLED"}


def test_restarting_controller_does_not_end_the_wait(fake: Path) -> None:
    (fake / "scontrol").write_text('#!/bin/sh\necho "Unable to contact slurm controller" >&2\nexit 1\n')
    assert call("wait", job="12", message="")["state"] == "waiting"
    (fake / "scontrol").write_text('#!/bin/sh\necho "slurm_load_jobs error: Invalid job id specified" >&2\nexit 1\n')
    assert call("wait", job="12", message="")["state"] == "ended"


def hold(fake: Path) -> subprocess.Popen[str]:
    """Run the script that holds the nodes, as Slurm does."""
    environment = {**os.environ, "SLURM_JOB_ID": "12"}
    return subprocess.Popen(
        ["/bin/sh", str(fake / "script")], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_step_starts_on_the_held_nodes_under_the_runs_name(fake: Path) -> None:
    call("allocate", count=2)
    (fake / "job").write_text("JobState=RUNNING NodeList=gpu[0,2] BatchHost=gpu0\n")
    directory = fake / "it's" / "node1"
    directory.mkdir(parents=True)
    run = [{**CANDIDATES[number], "directory": str(directory)} for number in (2, 0)]
    process = hold(fake)
    assert process.poll() is None
    assert call("begin", job="12", run_id="bert", nodes=run, directory=str(directory)) == {"changed": True, "job": "12"}
    assert process.wait(30) == 0
    assert (directory / "supervisor.slurm.log").read_text() == "srun in 12\n"
    assert (fake / "updates").read_text() == "update JobId=12 JobName=bert\n"
    assert list((fake / ".muster" / "slurm").iterdir()) == [], "the step is read once"


def test_nodes_are_released_if_no_run_follows(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "ALLOCATION_HOLD_TIMEOUT", 0.4)
    call("allocate", count=2)
    process = hold(fake)
    assert process.wait(30) == 1 and process.stderr is not None
    assert "no run was launched on these nodes" in process.stderr.read()
    assert timeouts.ALLOCATION_HOLD_TIMEOUT >= 600, "code and checks may take minutes"


def test_run_is_refused_if_its_job_has_ended(fake: Path) -> None:
    (fake / "job").write_text("JobState=TIMEOUT Reason=TimeLimit\n")
    reply = call("begin", job="12", run_id="bert", directory=str(fake))
    assert reply["error"] == "Slurm job 12 ended in state TIMEOUT before the run was launched: launch it again"


def test_release_cancels_the_job(fake: Path) -> None:
    assert call("release", job="12") == {"changed": True}
    assert (fake / "cancelled").read_text() == "12\n"
