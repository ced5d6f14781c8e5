"""A run ends on all nodes or on none: each test causes a fault on the test hosts, and checks every node."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab, files
from tests.support import drive
from tests.support.recap import unchanged

MASTER, WORKER = "node1", "node3"


def launch_loop(lab: Lab, run_id: str, *names: str) -> drive.Play:
    """Launch loop.py with torchrun on some nodes, and wait until it has completed some steps."""
    play = drive.launch(lab, "loop.py", run_id=run_id, nodes=",".join(names), nnodes=len(names))
    play.wait_for(rf"step 3 sum {len(names)} world {len(names)}")
    return play


def launch_ticks(lab: Lab, run_id: str, *args: str, **extra: object) -> drive.Play:
    """Launch ticks.py on three nodes, and wait until it has completed some steps.

    It does not import torch: the supervisors' behavior does not depend on it.
    """
    play = drive.launch(lab, "ticks.py", *args, run_id=run_id, nnodes=3, launch_launcher="env", **extra)
    play.wait_for(r"step 3 of rank 0")
    return play


def test_successful_run_keeps_a_record_and_no_secrets(lab: Lab, nodes: list[str]) -> None:
    options: dict[str, Any] = {"roll": True, "launch_report": True, "launch_skip": ["own-name-loopback"]}
    play = drive.launch(lab, "loop.py", "--steps", "5", run_id="normal", nnodes=4, **options).wait()
    assert play.rc == 0, play.output
    # a launch on busy nodes also prints that it is reading facts and, twice a minute, that the nodes are alive
    lines = [line for line in drive.plain_lines(play) if not (line.startswith("step ") or " nodes alive: " in line)]
    assert len(lines) <= 13, play.output
    drive.nothing_left(lab, nodes, within=15)
    verdict = drive.record(lab, "normal")
    assert (verdict["state"], verdict["world_size"]) == ("succeeded", 4)
    assert [(rank["host"], rank["rank"], rank["exit_code"]) for node in verdict["nodes"] for rank in node["ranks"]] == [
        (name, number, 0) for number, name in enumerate(nodes)
    ]
    for name in nodes:  # the record is kept, and the secrets are removed
        names = lab.exec(name, ["sh", "-c", "ls /home/muster/.muster/runs/normal/node*"]).stdout.split()
        assert "plan.json" in names and "token" not in names and "environment.json" not in names
        assert lab.exec(name, ["find", "/run/muster", "-mindepth", "2"]).stdout == ""


@pytest.mark.thorough  # molecule/launchers has exceptions under torchrun and mpirun
def test_exception_in_a_rank_ends_run_and_is_reported(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "loop.py", "--raise-on", "2", run_id="raises", nnodes=3)
    play.wait_for(r"step 5 ")
    drive.nothing_left(lab, nodes, within=10)
    play.wait()
    assert play.rc == 2, play.output
    for word in ("node3", "rank 2", "ValueError: boom at step 5", "stderr.log"):
        assert word in play.last_lines(), play.output
    failure = drive.record(lab, "raises")["first_failure"]
    assert (failure["node"], failure["rank"], failure["error"]) == ("node3", 2, "ValueError: boom at step 5")
    assert "boom at step 5" in lab.exec("node3", ["cat", failure["log"]]).stdout


@pytest.mark.parametrize(
    ("victim", "node"),
    [
        # the tests of a lost mount and of a closed terminal kill a rank, too
        pytest.param("rank", MASTER, marks=pytest.mark.thorough),
        pytest.param("rank", WORKER, marks=pytest.mark.thorough),
        ("launcher", WORKER),
        ("supervisor", MASTER),
        pytest.param("supervisor", WORKER, marks=pytest.mark.thorough),
    ],
)
def test_killed_rank_launcher_or_supervisor_ends_the_run(lab: Lab, nodes: list[str], node: str, victim: str) -> None:
    run_id = f"kill-{victim}-{node}"
    if victim == "launcher":
        nodes = ["node2", WORKER]
        play = launch_loop(lab, run_id, *nodes)
        pid = drive.pid_of(lab, node, "torch.distributed.run")
    else:
        play = launch_ticks(lab, run_id)
        pid = (
            drive.pid_of(lab, node, "supervisor.py")
            if victim == "supervisor"
            else drive.rank_pid(lab, node, "ticks.py")
        )
    lab.exec(node, ["kill", "-9", str(pid)])
    drive.nothing_left(lab, nodes, within=10)
    play.wait()
    assert play.rc == 2, play.output
    number = nodes.index(node)
    output = f"failed first: node {node} (node_rank {number})"
    if victim == "rank":
        output += f", rank {number}"
        assert f"  its log:      {node}:/" in play.last_lines(), play.output
    assert f"  {output}: " in play.last_lines(), play.output
    failure = drive.record(lab, run_id)["first_failure"]
    assert failure["node"] == node, failure
    if victim != "supervisor":
        assert "SIGKILL" in failure["error"], failure
    else:
        assert "while the node itself stayed up" in failure["error"], failure
        assert "provider's console" not in play.output
    if victim == "rank":
        assert failure["rank"] == number


@pytest.mark.thorough  # test_lifeline.py of the supervisor
def test_hanging_supervisor_ends_the_run(lab: Lab, nodes: list[str]) -> None:
    """A stopped supervisor, as on an unresponsive file system, is killed on its own node, together with the job."""
    play = launch_ticks(lab, "hangs")
    lab.exec(WORKER, ["kill", "-STOP", str(drive.pid_of(lab, WORKER, "supervisor.py"))])
    drive.nothing_left(lab, nodes, within=30)
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, "hangs")["first_failure"]
    assert failure["node"] == WORKER and "while the node itself stayed up" in failure["error"], failure


@pytest.mark.parametrize("node", [MASTER, pytest.param(WORKER, marks=pytest.mark.thorough)])
def test_rebooted_node_is_reported_as_rebooted(lab: Lab, nodes: list[str], node: str) -> None:
    play = launch_ticks(lab, f"reboots-{node}")
    subprocess.run(lab.ssh(node, "sudo systemctl reboot"), check=False)
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, f"reboots-{node}")["first_failure"]
    assert failure["node"] == node and "stopped on request" not in play.output, play.output
    error = failure["error"]
    assert "was rebooted or shut down" in error or "was restarted during the run" in error, failure
    assert "last -x shutdown reboot" in play.output
    drive.nothing_left(lab, nodes, within=120)


@pytest.mark.thorough  # tests/unit/plugins/module_utils/run/test_hostile_job.py
def test_run_whose_files_the_job_removed_can_be_stopped(lab: Lab, nodes: list[str]) -> None:
    play = launch_ticks(lab, "removes")
    for name in nodes[:3]:
        lab.exec(name, ["sh", "-c", "rm -r /home/muster/.muster/runs/removes/node*/*.json*"])
    stopped = drive.run("stop.yml", lab.inventory, run_id="removes")
    assert stopped.rc == 0 and "no node has a run" not in stopped.output, stopped.output
    play.wait()
    drive.nothing_left(lab, nodes, within=10)
    assert drive.record(lab, "removes")["state"] == "stopped"


@pytest.mark.thorough
@pytest.mark.parametrize("node", [MASTER, WORKER])
def test_powered_off_node_ends_the_run(lab: Lab, nodes: list[str], node: str) -> None:
    play = launch_ticks(lab, f"off-{node}") if node == MASTER else launch_loop(lab, f"off-{node}", *nodes)
    lab.power_off(node)
    drive.nothing_left(lab, [name for name in nodes if name != node], within=20)
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, f"off-{node}")["first_failure"]
    assert failure["node"] == node and "lost" in failure["error"], failure
    assert f"node {node}" in play.last_lines(), play.output


@pytest.mark.parametrize(
    ("node", "from_machine"),
    [
        pytest.param(MASTER, False, marks=pytest.mark.thorough),  # molecule/recovery isolates the first node
        pytest.param(MASTER, True, marks=pytest.mark.thorough),
        pytest.param(WORKER, False, marks=pytest.mark.thorough),
        (WORKER, True),
    ],
)
def test_isolated_node_ends_the_run(lab: Lab, nodes: list[str], node: str, from_machine: bool) -> None:
    run_id = f"cut-{node}-{from_machine}"
    play = launch_ticks(lab, run_id)
    lab.cut_off(node, from_machine=from_machine)
    drive.nothing_left(lab, nodes, within=20)  # also on the isolated node
    play.wait()
    assert play.rc == 2, play.output
    if node != MASTER:
        assert drive.record(lab, run_id)["first_failure"]["node"] == node


@pytest.mark.thorough  # test_lifeline.py of the supervisor
def test_mount_lost_during_a_run_is_reported(lab: Lab, nodes: list[str]) -> None:
    created = lab.exec(WORKER, ["sh", "-c", "mkdir -p /data && mount -t tmpfs data /data"])
    assert created.returncode == 0, created.stderr
    try:
        mounts = f"{{{{ ['/data'] if inventory_hostname == '{WORKER}' else [] }}}}"
        play = launch_ticks(lab, "mount", preflight_mounts=mounts)
    finally:
        lab.exec(WORKER, ["umount", "/data"])
    play.wait_for(rf"\[muster\] the mount /data on {WORKER} has died: nothing is mounted there anymore", 30)
    lab.exec(MASTER, ["kill", "-9", str(drive.rank_pid(lab, MASTER, "ticks.py"))])
    drive.nothing_left(lab, nodes, within=10)
    play.wait()
    assert f"on {WORKER} the mount /data died during the run" in play.last_lines(), play.output


def test_named_shared_memory_survives_the_last_logout(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "named_memory.py", run_id="shares", nnodes=1, launch_launcher="env", detach=True).wait()
    assert play.rc == 0, play.output
    log = "/home/muster/.muster/runs/shares/node0/launcher.log"

    def count_lines(expected_text: str) -> int:
        return len(lab.exec(MASTER, ["sh", "-c", f"grep -h '{expected_text}' {log}"]).stdout.splitlines())

    drive.eventually("the job shares memory", lambda: count_lines("^step") > 0, 120)
    files.end_ssh_masters(lab.name, lab.node(MASTER).address)
    # logind writes this file at a user's first login, and removes it last
    probe = ["sh", "-c", "! test -e /run/systemd/users/1000"]
    drive.eventually("nobody is logged in", lambda: lab.exec(MASTER, probe).returncode == 0, 120)
    steps = count_lines("^step")
    drive.eventually(
        "the job continues", lambda: count_lines("^step") > steps + 5, 30, lambda: drive.traces(lab, MASTER)
    )
    assert lab.exec(MASTER, ["sh", "-c", "ls /dev/shm/psm_*"]).returncode == 0
    stopped = drive.run("stop.yml", lab.inventory, run_id="shares")
    assert stopped.rc == 0, stopped.output


SMI = """#!/bin/sh
case "$1" in
--query-gpu=index,*) echo 'index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode'
  echo '0, GPU-0, NVIDIA L40S, 550.127.05, 46068 MiB, 1 MiB, Default' ;;
--query-gpu=timestamp,*) echo "$(date '+%Y/%m/%d %T.000'), 0, 97, 41000, 46068, 61, 300.10" ;;
esac
"""


@pytest.fixture
def gpus(lab: Lab, nodes: list[str]) -> Iterator[None]:
    """Give each node a GPU, based on the output of nvidia-smi."""
    path = "/usr/local/bin/nvidia-smi"
    try:
        for node in nodes:
            created = lab.exec(node, ["sh", "-c", f"printf %s {shlex.quote(SMI)} > {path} && chmod 755 {path}"])
            assert created.returncode == 0, created.stderr
        yield
    finally:
        for node in nodes:
            lab.exec(node, ["rm", "-f", path])


@pytest.mark.usefixtures("gpus")
def test_run_continues_after_terminal_is_closed(lab: Lab, nodes: list[str]) -> None:
    job = {"launch_script": str(drive.JOBS / "ticks.py"), "launch_launcher": "env"}
    variables = json.dumps({"run_id": "closed", "nnodes": 4, **job})
    command = [
        str(drive.CHECKOUT / ".venv/bin/ansible-playbook"),
        "playbooks/launch.yml",
        "-i",
        str(lab.inventory),
        "-e",
        variables,
    ]
    process, master = drive.terminal(command, {})
    received = b""
    while b"step 3 " not in received:
        received += os.read(master, 65536)
    os.close(master)  # SIGHUP is sent to all processes of the terminal
    drive.eventually("the playbook is gone", lambda: process.poll() is not None, 120)

    def steps() -> int:
        logs = drive.run("logs.yml", lab.inventory, run_id="closed", fetch=True)
        assert logs.rc == 0, logs.output
        folder = lab.inventory.parent / "runs/closed/logs/node0"
        assert ", 97, 41000, 46068, " in (folder / "gpus.csv").read_text()
        return len((folder / "launcher.log").read_text().splitlines())

    follow = drive.start("logs.yml", lab.inventory, run_id="closed", rank=2)
    first = drive.start("logs.yml", lab.inventory)  # rank 0 of the latest run
    refused = drive.run("logs.yml", lab.inventory, run_id="closed", rank=9)
    assert refused.rc == 2, refused.output
    assert "run closed has ranks 0 to 3, not 9: correct -e rank" in refused.output, refused.output
    follow.wait_for(r"step \d+ of rank 2")
    first.wait_for(r"step \d+ of rank 0")
    before = steps()
    drive.eventually("the run continues", lambda: steps() > before, 120)
    status = drive.run("status.yml", lab.inventory, json=str(lab.inventory.parent / "status.json"), roll=True)
    assert status.rc == 0 and "step " in status.output and len(drive.plain_lines(status)) <= 12, status.output
    assert status.output.count(" 97 %, 40 of 45 GiB  ") == 4, status.output
    document = json.loads((lab.inventory.parent / "status.json").read_text())
    assert [(node["node"], node["state"], node["ranks"]) for node in document["nodes"]] == [
        (name, "running", [number]) for number, name in enumerate(nodes)
    ]
    lab.exec(WORKER, ["kill", "-9", str(drive.rank_pid(lab, WORKER, "ticks.py"))])  # although no controller is watching
    drive.nothing_left(lab, nodes, within=10)
    assert first.wait().rc == 0, first.output
    follow.wait()  # the command exits by itself and has shown only this rank
    assert follow.rc == 0, follow.output
    assert not re.search(r"^step \d+ of rank [013]", follow.output, re.MULTILINE), follow.output
    status = drive.run("status.yml", lab.inventory, run_id="closed")
    assert status.output.count(" failed  ") == 4, status.output
    assert_reported(lab, status, "closed", WORKER, node_rank=2, rank=2, error="was killed by SIGKILL")


def start_detached(lab: Lab, runs: dict[str, list[str]]) -> None:
    """Start unwatched runs on these nodes, and wait until all their ranks have completed some steps."""
    plays = [
        drive.launch(lab, "ticks.py", run_id=run_id, nodes=",".join(names), detach=True, launch_launcher="env")
        for run_id, names in runs.items()
    ]
    for play in plays:
        assert play.wait().rc == 0, play.output

    def is_stepping(run_id: str, number: int) -> bool:
        log = f"/home/muster/.muster/runs/{run_id}/node{number}/launcher.log"
        return lab.exec(runs[run_id][number], ["grep", "-q", "^step 3 ", log]).returncode == 0

    ranks = [(run_id, number) for run_id, names in runs.items() for number in range(len(names))]
    drive.eventually("all ranks are at work", lambda: all(is_stepping(*item) for item in ranks), 120)


@pytest.mark.thorough
def test_status_reports_failures_of_unwatched_runs(lab: Lab, nodes: list[str]) -> None:
    """One unwatched run has an exception in a rank, another one loses its first node's supervisor."""
    runs = {"alone": nodes[:2], "orphan": nodes[2:]}
    start_detached(lab, runs)
    lab.exec("node2", ["kill", "-USR1", str(drive.rank_pid(lab, "node2", "ticks.py"))])
    lab.exec("node3", ["kill", "-9", str(drive.pid_of(lab, "node3", "supervisor.py"))])
    drive.nothing_left(lab, nodes, within=10)
    statuses = {item: drive.start("status.yml", lab.inventory, run_id=item) for item in runs}
    for status in statuses.values():
        assert status.wait().rc == 0, status.output
    assert_reported(lab, statuses["alone"], "alone", "node2", node_rank=1, rank=1, error="ValueError: boom as told")
    assert_reported(lab, statuses["orphan"], "orphan", "node3", node_rank=0, rank=None, error="node3 is lost: ")
    assert " died  " in statuses["orphan"].output, statuses["orphan"].output


@pytest.mark.thorough  # tests/unit/plugins/action/test_run_record.py, and the test of a closed terminal above
def test_status_reports_lost_nodes_of_unwatched_runs(lab: Lab, nodes: list[str]) -> None:
    """In one unwatched run, a node is isolated; in another one, the first node is powered off."""
    runs = {"cut": nodes[:2], "off": nodes[2:]}
    start_detached(lab, runs)
    lab.cut_off("node2")
    lab.power_off("node3")
    drive.nothing_left(lab, ["node1", "node2", "node4"], within=20)  # also on the isolated node
    statuses = {item: drive.start("status.yml", lab.inventory, run_id=item) for item in runs}
    for status in statuses.values():
        assert status.wait().rc == 0, status.output
    assert_reported(
        lab, statuses["cut"], "cut", "node2", node_rank=1, rank=None, error="node2 is lost: no sign of life for"
    )
    assert_reported(
        lab, statuses["off"], "off", "node3", node_rank=0, rank=None, error="node3 is lost: no sign of life for"
    )
    assert " unreachable  " in statuses["off"].output, statuses["off"].output
    stop = drive.run("stop.yml", lab.inventory, run_id="off")
    assert stop.rc == 2 and "node3 is not responding" in stop.output, stop.output


def assert_reported(  # noqa: PLR0913
    lab: Lab, status: drive.Play, run_id: str, node: str, *, node_rank: int, rank: int | None, error: str
) -> None:
    """Check that status.yml reports and records the failure of an unwatched run as launch.yml would have."""
    location = f"node {node} (node_rank {node_rank})" + (f", rank {rank}" if rank is not None else "")
    assert f"run {run_id} failed" in status.output, status.output
    assert f"  failed first: {location}: {error}" in status.output, status.output
    if rank is not None:
        assert f"  its log:      {node}:/" in status.output, status.output
    failure = drive.record(lab, run_id)["first_failure"]
    assert (failure["node"], failure["node_rank"], failure["rank"]) == (node, node_rank, rank), failure
    assert failure["error"].startswith(error), failure


def stop_sshd(lab: Lab, node: str) -> None:
    """Stop sshd on a node, and end its open connections."""
    lab.exec(node, ["systemctl", "stop", "ssh"])

    def has_no_sshd() -> bool:
        pids = [str(item.pid) for item in lab.processes(node) if item.command.startswith("sshd")]
        if pids:
            lab.exec(node, ["kill", *pids])
        return not pids

    drive.eventually(f"{node} has no sshd", has_no_sshd, 120)


def connected_nodes(lab: Lab) -> set[str]:
    """Return the nodes on which this machine is currently running a command."""
    processes = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    arguments = [line.split() for line in processes.splitlines() if line.startswith("ssh ")]
    return {node.name for node in lab.nodes if any(node.address in line for line in arguments)}


def test_watching_needs_only_the_first_node_and_stop_ends_everything(lab: Lab, nodes: list[str]) -> None:
    """Watching takes one connection, to the first node; stopping ends processes that ignore SIGTERM or are detached."""
    play = launch_ticks(lab, "stubborn", "--stubborn", "--detach")
    assert any("4322" in item.command for item in drive.of_run(lab, WORKER))
    connected: set[str] = set()

    def assert_continues() -> None:
        steps = play.output.count(" of rank 0") + 12

        def is_continuing() -> bool:
            connected.update(connected_nodes(lab))
            return MASTER in connected and play.output.count(" of rank 0") > steps

        drive.eventually("later steps are shown", is_continuing, 20, play.last_lines)
        assert connected == {MASTER}

    assert_continues()
    try:
        for name in nodes[1:]:
            stop_sshd(lab, name)
        assert_continues()
    finally:
        for name in nodes[1:]:
            lab.exec(name, ["systemctl", "start", "ssh"])
    stop = drive.run("stop.yml", lab.inventory, run_id="stubborn")
    assert stop.rc == 0, stop.output
    for name in nodes:
        assert drive.traces(lab, name) == ""
    play.wait()
    assert play.rc == 2 and "stopped" in play.last_lines(), play.output
    assert drive.record(lab, "stubborn")["state"] == "stopped"
    rerun = drive.run("stop.yml", lab.inventory, run_id="stubborn")
    assert unchanged(rerun), rerun.output


@pytest.mark.thorough  # test_lifeline.py of the supervisor
def test_elastic_run_continues_without_a_lost_node(lab: Lab, nodes: list[str]) -> None:
    three = f"{MASTER},node2,{WORKER}"
    play = drive.launch(lab, "loop.py", "--steps", "50", run_id="elastic", nodes=three, nnodes="2:3")
    play.wait_for(r"step 3 sum 3 world 3")
    lab.power_off(WORKER)
    play.wait_for(r"\[muster\] node3 is lost: .* the run continues with 2 of 3 nodes", 40)
    play.wait_for(r"step 3 sum 2 world 2", 90)
    play.wait()
    assert play.rc == 0 and f"lost during the run: {WORKER}" in play.last_lines(), play.output
    verdict = drive.record(lab, "elastic")
    assert (verdict["state"], verdict["nodes"][2]["state"]) == ("succeeded", "lost")
    drive.nothing_left(lab, [MASTER, "node2"], within=15)


@pytest.mark.thorough
def test_elastic_run_fails_when_its_store_host_is_lost(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "loop.py", run_id="storeless", nodes=f"{MASTER},node2,node4", nnodes="1:3")
    play.wait_for(r"step 3 sum 3 world 3")
    lab.power_off(MASTER)
    drive.nothing_left(lab, ["node2", "node4"], within=20)
    play.wait()
    assert play.rc == 2 and f"node {MASTER}" in play.last_lines(), play.output


@pytest.mark.thorough  # tests/unit/playbooks/test_two_jobs.py ends a run beside another
def test_failed_run_does_not_affect_another_run(lab: Lab, nodes: list[str]) -> None:
    first = drive.launch(lab, "ticks.py", run_id="left", nodes="node1,node2", launch_launcher="env")
    second = drive.launch(lab, "ticks.py", run_id="right", nodes="node3,node4", launch_launcher="env")
    for play in (first, second):
        play.wait_for(r"step 3 of rank 0")
    lab.exec("node3", ["kill", "-USR1", str(drive.rank_pid(lab, "node3", "ticks.py"))])
    second.wait()
    assert second.rc == 2, second.output
    drive.nothing_left(lab, ["node3", "node4"], within=10)
    steps = first.output.count("step ")
    drive.eventually("the other run continues", lambda: first.output.count("step ") > steps + 10, 120)
    assert drive.run("stop.yml", lab.inventory, run_id="left").rc == 0
    first.wait()
