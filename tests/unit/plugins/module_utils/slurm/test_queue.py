"""Runs in the Slurm queue: real supervisors, started by fakes of Slurm's programs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import secrets as run_secrets
from ansible_collections.muster.training.plugins.module_utils._run import start as run_start
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import ABANDONED_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._slurm import queue, run_job
from tests.unit.supervised import Run, end_by_force, eventually, make_run

# Each gets the arguments of a Slurm command. The file `queue` contains squeue's output, and `nodes` contains
# scontrol's.
PROGRAMS = {
    "squeue": 'case "$*" in *PENDING*) echo 11; echo 12;; *) cat "$FAKE/queue";; esac',
    "scancel": 'echo "$*" >> "$FAKE/cancelled"; : > "$FAKE/queue"',
    "scontrol": 'case "$*" in "show node"*) cat "$FAKE/nodes";; *) echo "JobState=CANCELLED Reason=None";; esac',
    "sbatch": 'cat > "$FAKE/script"; echo "$*" > "$FAKE/options"; echo "12;cluster"',
    # starts each node's task at the same time, as a step does
    "srun": 'while [ "$1" != /bin/sh ]; do shift; done; '
    'for name in gpu0 gpu1; do SLURMD_NODENAME=$name setsid "$@" & done; wait',
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with the programs and their input and output files."""
    directory = tmp_path / "slurm"
    directory.mkdir()
    for name, text in PROGRAMS.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(directory))
    (directory / "queue").write_text("12|PENDING|Resources|2026-11-27T14:05:00\n")
    return directory


def write_runs(run: Run, **more: Any) -> list[dict[str, Any]]:
    """Write the run directories of all nodes, as a launch with a scheduler does."""
    inputs = {"token": run.token, "environment": {}, "scheduler": "slurm", "supervisor": run.sources, **more}
    return [run_start.start(run.request(rank, plan=plan, share=True, **inputs)) for rank, plan in enumerate(run.plans)]


def submit(run: Run, fake: Path, requeue: int = 0, **options: str) -> dict[str, Any]:
    """Submit the run, whose nodes have other names in Slurm."""
    nodes = [plan["node"] for plan in run.plans]
    lines = [f"NodeName=gpu{number} NodeAddr={node['address']}\n" for number, node in enumerate(nodes)]
    (fake / "nodes").write_text("".join(lines))
    request = [
        {"name": node["name"], "address": node["address"], "directory": str(run.node(rank))}
        for rank, node in enumerate(nodes)
    ]
    fields = {"run_id": run.run_id, "nodes": request, "options": options, "requeue": requeue}
    return run_job.main({"operation": "submit", "user": "", **fields})


def test_run_waits_and_shows_its_position(tmp_path: Path, fake: Path) -> None:
    run = make_run(tmp_path / "runs", [["/bin/true"], ["/bin/true"]])
    assert [reply["supervision"] for reply in write_runs(run)] == ["Slurm job", "Slurm job"]
    assert submit(run, fake, partition="gpu") == {"changed": True, "job": "12"}
    assert "--partition=gpu" in (fake / "options").read_text()
    assert run.processes() == {}, "Slurm starts it, not the launch"

    expected = "queued as Slurm job 12, position 2, reason Resources, expected start 2026-11-27T14:05"
    for rank in (0, 1):
        state = run_status.read(run.request(rank, wait=0))["run"]
        assert (state["state"], state["message"]) == ("starting", expected)
    request = {"operation": "wait", "run_id": run.run_id, "job": "12", "directory": str(run.node(0)), "message": ""}
    assert run_job.main(request) == {"state": "waiting", "message": expected}


def test_supervisor_of_a_queued_run_is_compiled(tmp_path: Path, fake: Path) -> None:
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    sources = {**run.sources, "program/_supervisor/newer.py": "match 1:\n    case\n"}
    write_runs(run, supervisor=sources)
    paths = [run.node(0) / name for name in sources if name.startswith("program/")]
    compiled = [path for path in paths if os.path.exists(importlib.util.cache_from_source(str(path)))]
    assert len(compiled) == len(paths) - 1, "also those beside a file that this Python cannot compile"


def test_job_is_requeued_with_priority_where_the_cluster_allows_it(tmp_path: Path, fake: Path) -> None:
    config = "SlurmctldParameters = enable_expedited_requeue\nSLURM_VERSION = 25.11.1"
    (fake / "scontrol").write_text(
        f'#!/bin/sh\ncase "$*" in "show node"*) cat "$FAKE/nodes";; "show config"*) echo "{config}";; esac\n'
    )
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    for requeue, expected in ((1, "--requeue=expedite"), (0, "--no-requeue")):
        submit(run, fake, requeue=requeue)
        assert expected in (fake / "options").read_text().split()


def test_secrets_of_a_waiting_run_survive_another_start(tmp_path: Path, fake: Path) -> None:
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    write_runs(run)
    long_ago = time.time() - 2 * ABANDONED_TIMEOUT
    for name in run_secrets.SECRETS:
        if (run.node(0) / name).exists():
            os.utime(run.node(0) / name, (long_ago, long_ago), follow_symlinks=False)
    run_start.remove_old_secrets(run.request(0), [])
    assert (run.node(0) / "token").exists()


def test_stop_removes_a_run_from_the_queue(tmp_path: Path, fake: Path) -> None:
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    write_runs(run)
    assert run_stop.stop(run.request(0, check=True))["stopped"] == [run.run_id]
    assert not (fake / "cancelled").exists()
    assert run.stop() == {"changed": True, "stopped": [run.run_id]}
    assert f"--name={run.run_id}" in (fake / "cancelled").read_text()
    state = run_status.read(run.request(0, wait=0))["run"]
    assert (state["state"], state["message"]) == ("stopped", "removed from the Slurm queue")
    assert not (run.node(0) / "token").exists()
    assert run.stop() == {"changed": False, "stopped": []}


def test_job_that_ends_before_the_run_starts_is_reported(tmp_path: Path, fake: Path) -> None:
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    write_runs(run)
    (fake / "queue").write_text("")
    (run.node(0) / "supervisor.slurm.log").write_text("slurmstepd: error: no room\n")
    request = {"operation": "wait", "run_id": run.run_id, "job": "12", "directory": str(run.node(0)), "message": ""}
    assert run_job.main(request) == {
        "state": "ended",
        "message": "Slurm job 12 ended in state CANCELLED before the run started; its output: slurmstepd: error: "
        "no room",
    }
    assert run_status.read(run.request(0, wait=0))["run"]["state"] == "died"


def test_batch_script_starts_the_supervisors_which_end_the_run(tmp_path: Path, fake: Path) -> None:
    """Real supervisors: a rank fails, and the run ends on both nodes, without a variable of Slurm in the ranks."""
    show = f"env > {tmp_path}/environment; exit 7"
    run = make_run(tmp_path / "runs", [["/bin/sleep", "600"], ["/bin/sh", "-c", show]])
    try:
        write_runs(run)
        submit(run, fake)
        assert os.system(f"SLURM_NTASKS=2 SLURM_PROCID=0 sh {fake}/script 2> /dev/null") != 127 << 8
        result = run.result()
        assert (result["state"], result["first_node"]) == ("failed", "node1")
        environment = (tmp_path / "environment").read_text()
        assert "MUSTER_RUN_ID=" in environment and "SLURM" not in environment
        run.wait_until_gone()
        assert not (run.node(0) / "token").exists()
    finally:
        end_by_force(run)


def batch(fake: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Run the batch script on the first node, as Slurm does."""
    variables = {**os.environ, "SLURM_JOB_ID": "12", "SLURMD_NODENAME": "gpu0", **environment}
    return subprocess.Popen(["/bin/sh", str(fake / "script")], env=variables, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def running(run: Run, fake: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Submit a run, and yield its batch script as soon as it runs; end all its processes afterwards."""
    write_runs(run)
    submit(run, fake)
    with batch(fake, **environment) as script:
        try:
            run.wait_for("running")
            yield script
        finally:
            end_by_force(run)


def describe_job(fake: Path, job: str) -> None:
    """Make scontrol describe the job with these fields. job: may contain `{end}`, which is 90 s from now."""
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 90))
    (fake / "scontrol").write_text(
        f'#!/bin/sh\ncase "$*" in "show node"*) cat "$FAKE/nodes";; *) echo "JobId=12 {job.format(end=end)}";; esac\n'
    )


PREEMPTED = "JobState=RUNNING PreemptTime={end} EndTime={end}"
SAVES = """
import os, pathlib, signal, sys, time
directory = pathlib.Path(os.environ["MUSTER_RUN_DIRECTORY"])
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
(directory / "ready").touch()
while not stopped and not (directory / "measured" / "enough").exists():
    time.sleep(0.02)
(directory / "measured" / "enough").touch()
"""


def test_run_is_requeued_after_a_notice_and_restarts(tmp_path: Path, fake: Path) -> None:
    """Real supervisors: Slurm signals the batch script, the ranks save, and the second life succeeds."""
    run = make_run(tmp_path / "runs", [[sys.executable, "-c", SAVES]] * 2)
    (fake / "squeue").write_text("#!/bin/sh\necho 1:30\n")
    (fake / "scontrol").write_text(
        '#!/bin/sh\ncase "$*" in "show node"*) cat "$FAKE/nodes";; requeue*) echo "$*" >> "$FAKE/requeued";; esac\n'
    )
    try:
        write_runs(run, requeue=1)
        assert submit(run, fake, requeue=1)["job"] == "12"
        assert "--requeue" in (fake / "options").read_text().split()
        with batch(fake) as first:
            eventually(lambda: all((run.node(rank) / "ready").exists() for rank in (0, 1)))
            first.send_signal(signal.SIGUSR1)
            eventually(lambda: (fake / "requeued").exists())
            first.send_signal(signal.SIGTERM)  # as Slurm does in this case
            first.wait(60)
        result = run.result()
        assert (result["state"], result["notice"]["source"]) == ("interrupted", "slurm")
        assert result["reason"].startswith("Slurm will end the job in 90 s")
        assert (run.node(1) / "requeue" / "token").exists()

        with batch(fake, SLURM_RESTART_COUNT="1") as second:
            assert second.wait(60) == 0
        assert json.loads((run.node(0) / "result.json").read_text())["state"] == "succeeded"
        assert json.loads((run.node(0) / "earlier" / "0" / "result.json").read_text())["state"] == "interrupted"
        assert not any((run.node(rank) / name).exists() for rank in (0, 1) for name in ("requeue", "token"))
        assert (fake / "requeued").read_text() == "requeue 12\n", "a run that has succeeded is not requeued"
    finally:
        end_by_force(run)


@pytest.mark.parametrize("command", [[sys.executable, "-c", SAVES], ["/bin/sleep", "600"]], ids=["saves", "dies"])
def test_signal_of_a_preemption_is_a_notice(tmp_path: Path, fake: Path, command: list[str]) -> None:
    """Real supervisors: Slurm signals all processes of the step, but not the batch script, and the job continues."""
    describe_job(fake, PREEMPTED)
    run = make_run(tmp_path / "runs", [command] * 2)
    with running(run, fake) as script:
        if command[0] == sys.executable:
            eventually(lambda: all((run.node(rank) / "ready").exists() for rank in (0, 1)))
        for rank in (0, 1):
            supervisor = run.supervisor(rank)
            for pid in [*descendants(supervisor), supervisor]:
                os.kill(pid, signal.SIGTERM)
        script.wait(60)
    result = run.result()
    assert (result["state"], result["notice"]["source"]) == ("interrupted", "slurm"), result


@pytest.mark.parametrize(("job", "state"), [(PREEMPTED, "interrupted"), ("JobState=CANCELLED", "stopped")])
def test_ranks_may_end_before_their_supervisors_are_signaled(tmp_path: Path, fake: Path, job: str, state: str) -> None:
    """Slurm signals the processes of a step one after another."""
    describe_job(fake, job)
    run = make_run(tmp_path / "runs", [["/bin/sleep", "600"]] * 2)
    with running(run, fake, SLURM_JOB_END_TIME="9999999999") as script:
        supervisors = [run.supervisor(rank) for rank in (0, 1)]
        for pid in (pids := descendants(supervisors[0])):
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not set(pids) & set(descendants(supervisors[0])))
        for pid in [*supervisors, *descendants(supervisors[1])]:
            os.kill(pid, signal.SIGTERM)
        script.wait(60)
    assert run.result()["state"] == state, run.result()


def test_cancelled_job_ends_with_a_verdict(tmp_path: Path, fake: Path) -> None:
    """Slurm sends SIGTERM to the supervisors as well."""
    run = make_run(tmp_path / "runs", [["/bin/sleep", "600"]] * 2)
    with running(run, fake, SLURM_JOB_END_TIME="9999999999") as script:
        script.terminate()
        for rank in (0, 1):
            os.kill(run.supervisor(rank), signal.SIGTERM)
        script.wait(60)
    result = run.result()
    assert result["state"] == "stopped" and "Slurm job 12 was cancelled or preempted" in result["reason"]


def test_missing_slurm_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    reply = run_job.main({"operation": "submit", "run_id": run.run_id, "nodes": [], "options": {}, "user": ""})
    assert reply["error"].startswith("scontrol is missing on this node") and "--tags slurm" in reply["error"]


@pytest.mark.parametrize(
    ("state", "start", "expected"),
    [
        ("RUNNING", "N/A", "Slurm job 5: running"),
        ("PENDING", "N/A", "queued as Slurm job 5"),
        ("PENDING", "2026-11-27T14:05:59", "queued as Slurm job 5, expected start 2026-11-27T14:05"),
        ("PENDING", "2027-11-27T14:05:00", "queued as Slurm job 5"),  # after a job without a time limit
        ("PENDING", "at noon", "queued as Slurm job 5, expected start at noon"),
    ],
)
def test_unknown_details_are_omitted(state: str, start: str, expected: str) -> None:
    entry = {"job": "5", "state": state, "reason": "None", "start": start}
    now = time.mktime((2026, 11, 27, 14, 0, 0, 0, 0, -1))
    assert queue.describe(entry, 0, now) == expected


def test_marker_and_plan_are_private(tmp_path: Path, fake: Path) -> None:
    run = make_run(tmp_path / "runs", [["/bin/true"]])
    write_runs(run)
    assert json.loads((run.node(0) / "supervisor.slurm.json").read_text()) == {}
    assert all(path.stat().st_mode & 0o077 == 0 for path in run.node(0).iterdir() if path.is_file())
