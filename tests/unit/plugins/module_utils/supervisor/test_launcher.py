"""The launcher of a node's ranks, as its supervisor sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    reap,
    start_in_background,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    make_private_directory,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor import launcher
from tests.unit.single_node import NodeMaker, run_job
from tests.unit.supervised import end_rank, eventually


@pytest.mark.parametrize("noticed", [False, True])
def test_node_is_not_marked_as_ended_by_muster_if_torchrun_noticed_a_failure(
    make_node: NodeMaker, noticed: bool
) -> None:
    supervisor = make_node(1, 2).supervisor
    job = run_job(supervisor, subprocess.Popen(["/bin/true"]))
    supervisor.launcher.code = job.wait()
    supervisor.launcher.noticed = noticed
    supervisor.stop("why")
    supervisor.make_report([])
    assert supervisor.report is not None and supervisor.report["ended_by_us"] is not noticed


@pytest.mark.parametrize(("max_restarts", "well"), [(0, False), (1, True)])
def test_torchrun_closing_ranks_is_a_failure_only_without_restarts(
    make_node: NodeMaker, max_restarts: int, well: bool
) -> None:
    supervisor = make_node(1, 2).supervisor
    supervisor.plan["max_restarts"] = max_restarts
    job = run_job(supervisor, subprocess.Popen(["/bin/sleep", "60"]))
    Path(supervisor.journal.path("launcher.log")).write_text("W1122 Sending process 4711 closing signal SIGTERM\n")
    supervisor.launcher.kill_late_ranks(time.monotonic())
    supervisor.stop("why")
    job.kill()
    job.wait()
    assert supervisor.launcher.ended_by_us is well


def test_launcher_that_had_already_ended_is_not_marked_as_ended_by_muster(make_node: NodeMaker) -> None:
    """Its end and rank 0's stop may be seen in the same turn."""
    supervisor = make_node(1, 2).supervisor
    job = run_job(supervisor, subprocess.Popen(["/bin/sh", "-c", "kill -9 $$"]))
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    supervisor.stop("why")
    assert not supervisor.launcher.ended_by_us
    supervisor.launcher.code = job.wait()
    supervisor.make_report([])
    assert supervisor.report is not None and not supervisor.report["ranks"][0].get("ended_by_us")


def test_rank_killed_just_before_the_stop_is_reported_as_first_failure(make_node: NodeMaker) -> None:
    """Its peers may notify rank 0 first, whose stop then arrives before this node has checked."""
    node = make_node(1, 2)
    supervisor = node.supervisor
    supervisor.plan["rank_logs"] = "ranks"
    job = run_job(supervisor, subprocess.Popen(["/bin/sleep", "60"]))
    end_rank(node.run.node(1), 0, -9, time.monotonic() - 0.01)
    supervisor.stop("why")
    job.kill()
    supervisor.launcher.code = job.wait()
    supervisor.make_report([])
    assert supervisor.report is not None
    (output,) = supervisor.report["ranks"]
    assert (output["exit_code"], output.get("first"), output.get("ended_by_us")) == (-9, True, None)


def test_container_mounts_the_secrets_kept_in_memory(make_rank_0: NodeMaker, tmp_path: Path) -> None:
    node = make_rank_0(1)
    assert node.supervisor.launcher.container_prefix() == []
    arguments = ["podman", "run", "--volume=/runs/x:/runs/x", "image"]
    node.supervisor.plan["wrap"] = arguments
    secrets = Path(node.supervisor.journal.path("environment.json"))
    assert node.supervisor.launcher.container_prefix() == arguments, "they lie in the run directory"
    secrets.unlink(missing_ok=True)
    secrets.symlink_to(tmp_path / "memory/run-1/environment.json")
    mount = f"--volume={tmp_path}/memory/run-1:{tmp_path}/memory/run-1:ro"
    assert node.supervisor.launcher.container_prefix() == ["podman", "run", mount, *arguments[2:]]


@pytest.mark.parametrize("existing", ["open to all", "a link"])
def test_temporary_directory_that_others_can_access_is_refused(tmp_path: Path, existing: str) -> None:
    path = tmp_path / "muster-0123"
    if existing == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "theirs")
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(FileExistsError, match="not a directory that only this user can access; remove it"):
        make_private_directory(str(path))
    make_private_directory(str(tmp_path / "mine"))
    make_private_directory(str(tmp_path / "mine"))
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_slow_container_removal_is_not_reported_as_a_stuck_process(
    make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_rank_0(2)
    removing, stubborn = 4711, 4712
    killed: list[tuple[list[int], int]] = []
    monkeypatch.setattr(launcher, "descendants", lambda root: [] if root == removing else [removing, stubborn])
    monkeypatch.setattr(launcher, "signal_all", lambda pids, number: killed.append((list(pids), number)))
    node.supervisor.plan["remove"] = ["docker", "rm", "--force", "muster-first-node0"]
    node.supervisor.launcher.remover, node.supervisor.launcher.code = removing, 0
    node.supervisor.launcher.phase = launcher.Ending(node.now)
    for seconds in (0.1, 1.0, 30.0):
        node.supervisor.tend_processes(node.now + seconds)
    assert killed[-1] == ([stubborn], signal.SIGKILL)
    assert node.supervisor.report is not None and node.supervisor.report["stuck"] == [stubborn]
    assert node.supervisor.report["container"] == (
        "the container engine is taking a long time to remove it; "
        "remove it there with: docker rm --force muster-first-node0"
    )


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        (["/bin/true"], ""),
        (["/bin/sh", "-c", "echo Error: No such container: muster-first-node0 >&2; exit 1"], ""),
        (["/bin/sh", "-c", "echo removal of container muster-first-node0 is already in progress; exit 1"], ""),
        (["/bin/sh", "-c", "echo Cannot connect to the Docker daemon >&2; exit 1"], "Cannot connect to the Docker"),
        (["/bin/false"], "the command that removes it ended with exit code 1; remove it there with: /bin/false"),
        (
            ["/nowhere/docker", "rm"],
            "the command that removes it ended with exit code 127; remove it there with: /nowhere/docker rm",
        ),
    ],
)
def test_failed_container_removal_is_reported(make_rank_0: NodeMaker, remove: list[str], message: str) -> None:
    supervisor = make_rank_0(1).supervisor
    supervisor.plan["remove"] = remove
    supervisor.launcher.code, supervisor.launcher.phase = 0, launcher.Ending(time.monotonic())

    def is_over() -> bool:
        supervisor.tend_processes(time.monotonic())
        return supervisor.report is not None

    eventually(is_over)
    assert supervisor.report is not None
    output = supervisor.report["container"]
    assert output.startswith(message) and bool(output) == bool(message)


def test_reap_returns_every_process_started_in_the_background() -> None:
    """subprocess would reap it at the start of the next process, and its pid may be reused by then."""
    first = start_in_background(["/bin/true"], os.devnull)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    second = start_in_background(["/bin/true"], os.devnull)
    os.waitid(os.P_PID, second, os.WEXITED | os.WNOWAIT)
    assert {first, second} <= set(reap())
