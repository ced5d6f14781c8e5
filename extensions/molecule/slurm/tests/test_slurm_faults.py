"""The faults of docs/running.md when Slurm starts the supervisors, and effects that only Slurm has on a run.

Slurm tracks processes by their parents here (proctrack/linuxproc), which loses children that detach themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell
from tests.support.slurm_hosts import as_user, end_run, has_job, in_queue, pid_of, site, states

pytestmark = pytest.mark.thorough
NODES = ["node1", "node2"]
SCRIPT = r" srun |/slurm_script| sleep 1$"  # the batch script's processes
PREEMPTION = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Iterator[Lab]:
    """Yield the hosts as a cluster whose jobs can be preempted; remove Slurm afterward."""
    play = site(lab, slurm_settings=PREEMPTION)
    assert play.rc == 0, play.output
    assert "proctrack/linuxproc" in root_shell(lab, "node1", "scontrol show config")
    yield lab
    assert site(lab, slurm_state="absent").rc == 0


@pytest.fixture
def idle(cluster: Lab) -> Iterator[Lab]:
    """Yield the hosts, which are on, reachable and idle before and after the test."""
    lab = cluster
    yield lab
    lab.mend()
    names = [node.name for node in lab.nodes]
    for name in names:  # a node may have been rebooted
        drive.eventually(f"{name} is up", partial(is_up, lab, name), 240)
    lab.exec("node1", ["scancel", "--user=muster"])
    drive.nothing_left(lab, names, within=120)
    drive.eventually("all nodes are idle", lambda: set(states(lab).values()) == {"idle"}, 120, lambda: str(states(lab)))


def is_up(lab: Lab, node: str) -> bool:
    return lab.exec(node, ["systemctl", "is-active", "ssh", "slurmd"]).returncode == 0


def signal(name: str, pattern: str) -> Callable[[Lab], object]:
    """Return a function that sends a signal to a process on node2."""
    return lambda lab: root_shell(lab, "node2", f"kill -{name} {pid_of(lab, 'node2', pattern)}")


def power_off(node: str) -> Callable[[Lab], object]:
    return lambda lab: lab.power_off(node)


class FailureCase(NamedTuple):
    """A fault, the seconds within which the run must end, and a pattern of its first failure."""

    make: Callable[[Lab], object]
    within: float
    error: str
    nodes: tuple[str, ...] = ("node1", "node2")
    """The nodes on which nothing of the run remains afterward."""
    blamed: str = "node2"


SUPERVISOR = r"^\S*python3\S* .*/supervisor\.py /"
RANK = r"^\S*python\S* .*ticks\.py"
FAULTS = {
    "rank raises": FailureCase(signal("USR1", RANK), 10, "ValueError: boom as told"),
    "rank is killed": FailureCase(signal("KILL", RANK), 10, "SIGKILL"),
    "supervisor is killed": FailureCase(signal("KILL", SUPERVISOR), 10, ""),
    "supervisor hangs": FailureCase(signal("STOP", SUPERVISOR), 30, ""),
    "node loses power": FailureCase(power_off("node2"), 20, "lost", ("node1",)),
    "first node loses power": FailureCase(power_off("node1"), 20, "lost", ("node2",), "node1"),
    "node loses its network": FailureCase(lambda lab: lab.cut_off("node2"), 20, "lost"),
    "node is rebooted": FailureCase(
        lambda lab: root_shell(lab, "node2", "systemctl --no-block reboot"),
        20,
        "was rebooted or shut down|was restarted during the run",
        ("node1",),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_failure_ends_the_run_on_all_nodes(idle: Lab, name: str) -> None:
    """A detached child of the job on each node ends as well."""
    lab, case, run_id = idle, FAULTS[name], name.replace(" ", "-")
    play = in_queue(lab, run_id, "--detach")
    play.wait_for("step 3 of rank 0")
    drive.eventually("children are detached", lambda: has_child(lab, "node1") and has_child(lab, "node2"), 30)
    case.make(lab)
    seconds = drive.eventually(
        f"nothing is left on {', '.join(case.nodes)}",
        lambda: not any(of_job(lab, node) for node in case.nodes),
        case.within,
        lambda: str({node: of_job(lab, node) for node in case.nodes}),
    )
    print(f"{name}: {seconds:.1f} s")
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, run_id)["first_failure"]
    assert failure["node"] == case.blamed and re.search(case.error, failure["error"]), failure


def test_killed_launcher_ends_the_run(idle: Lab) -> None:
    play = drive.launch(idle, "steps.py", "--detach", run_id="launcher", nnodes=2, launch_scheduler="slurm")
    play.wait_for(r"step 3 world 2")
    root_shell(idle, "node2", f"kill -9 {drive.pid_of(idle, 'node2', 'torch.distributed.run')}")
    seconds = drive.eventually("nothing is left", lambda: not any(of_job(idle, node) for node in NODES), 10)
    print(f"launcher is killed: {seconds:.1f} s")
    play.wait()
    failure = drive.record(idle, "launcher")["first_failure"]
    assert play.rc == 2 and failure["node"] == "node2" and "SIGKILL" in failure["error"], failure


def test_elastic_run_continues_without_a_lost_node(idle: Lab) -> None:
    """Slurm does not kill the job (--no-kill), even after it has marked the node as down."""
    options = {"nnodes": "2:3", "nodes": "node1,node2,node3", "launch_scheduler": "slurm"}
    play = drive.launch(idle, "loop.py", "--steps", "600", run_id="elastic", **options)
    play.wait_for(r"step 3 sum 3 world 3")
    idle.power_off("node3")
    play.wait_for(r"\[muster\] node3 is lost: .* the run continues with 2 of 3 nodes", 40)
    play.wait_for(r"step 3 sum 2 world 2", 90)
    drive.eventually("node3 is down", lambda: "down" in states(idle)["node3"], 120, lambda: str(states(idle)))
    play.wait()
    verdict = drive.record(idle, "elastic")
    assert play.rc == 0 and (verdict["state"], verdict["nodes"][2]["state"]) == ("succeeded", "lost"), play.output
    drive.eventually("the job has ended", lambda: not has_job(idle, "elastic"), 60)


def test_run_restarts_in_its_job_without_the_lost_node(idle: Lab) -> None:
    options = {"launch_restarts": 1, "launch_restart_min_nodes": 2}
    play = in_queue(idle, "restarts", "--until", "enough", nnodes=3, **options)
    play.wait_for("step 3 of rank 0")
    root_shell(idle, "node3", f"kill -9 {pid_of(idle, 'node3', SUPERVISOR)}")
    play.wait_for(r"attempt 1 starts: node3 was lost after .*; 2 of 3 nodes")
    play.wait_for(r"attempt 1 starts(.|\n)*step 3 of rank 0")
    assert drive.run("stacks.yml", idle.inventory, run_id="restarts").rc == 0
    end_run(idle, "restarts")
    assert play.wait().rc == 0, play.output
    assert drive.record(idle, "restarts")["attempts"][1]["nodes"] == NODES
    drive.eventually("the job has ended", lambda: not has_job(idle, "restarts"), 60)


def of_job(lab: Lab, node: str) -> list[str]:
    """Return the remains of a run on a node, except the job's script and its srun, which wait for lost nodes."""
    return [line for line in drive.traces(lab, node).splitlines() if not re.search(SCRIPT, line)]


def has_child(lab: Lab, node: str) -> bool:
    return lab.exec(node, ["pgrep", "--full", "^sleep 4322"]).returncode == 0


def test_cancelled_run_ends_even_if_its_ranks_ignore_the_cancellation(idle: Lab) -> None:
    """Slurm sends SIGKILL later than the supervisor, which can still write the verdict."""
    play = in_queue(idle, "stubborn", "--stubborn", "--detach", launch_stop_grace=5)
    play.wait_for("step 3 of rank 0")
    as_user(idle, "node1", "scancel --name=stubborn")
    seconds = drive.eventually(
        "nothing is left", lambda: not any(drive.traces(idle, node) for node in NODES), 30, lambda: str(states(idle))
    )
    print(f"scancel, SIGTERM ignored, stop grace 5 s: {seconds:.1f} s")
    play.wait()
    assert drive.record(idle, "stubborn")["state"] == "stopped", play.output


def test_stop_ends_run_and_job(idle: Lab) -> None:
    play = in_queue(idle, "stops", "--detach")
    play.wait_for("step 3 of rank 0")
    assert drive.run("stop.yml", idle.inventory, run_id="stops").rc == 0
    drive.eventually("the job has ended", lambda: not has_job(idle, "stops"), 10)
    play.wait()
    assert drive.record(idle, "stops")["state"] == "stopped"


def test_drained_node_completes_its_run_and_gets_no_further_runs(idle: Lab) -> None:
    play = in_queue(idle, "drained", "--until", "enough")
    play.wait_for("step 3 of rank 0")
    root_shell(idle, "node1", "scontrol update NodeName=node2 State=DRAIN Reason='new fan'")
    try:
        assert in_queue(idle, "later", detach=True).wait().rc == 0
        end_run(idle, "drained")
        assert play.wait().rc == 0, play.output
        drive.eventually("node2 is drained", lambda: states(idle)["node2"] == "drained", 60)
        status = drive.run("status.yml", idle.inventory, run_id="later")
        assert re.search(r"queued as Slurm job \d+.*reason \S*(ReqNodeNotAvail|Resources|Nodes)", status.output)
        assert drive.run("stop.yml", idle.inventory, run_id="later").rc == 0
    finally:
        root_shell(idle, "node1", "scontrol update NodeName=node2 State=RESUME")


def test_run_continues_while_the_controller_is_unavailable_for_a_minute(idle: Lab) -> None:
    play = in_queue(idle, "minute", "--until", "enough")
    play.wait_for("step 1 of rank 0")
    root_shell(idle, "node1", "systemctl stop slurmctld")
    try:
        play.wait_for("step 600 of rank 0", 240)  # ten steps per second
        end_run(idle, "minute")
        assert play.wait().rc == 0, "the verdict does not need the controller"
    finally:
        root_shell(idle, "node1", "systemctl start slurmctld")
    drive.eventually("the job has ended", lambda: not has_job(idle, "minute"), 180)


def test_requeued_run_resumes_from_its_checkpoint(idle: Lab) -> None:
    """After requeueing, examples/ddp continues after the last saved epoch."""
    options: dict[str, Any] = {"nnodes": 2, "launch_scheduler": "slurm", "launch_slurm_requeue": 1}
    play = drive.start(
        "launch.yml",
        idle.inventory,
        run_id="resumes",
        launch_script=str(drive.CHECKOUT / "examples" / "ddp" / "train_ddp.py"),
        launch_args=["--epochs", "5000", "--checkpoint-every", "1", "--resume"],
        launch_checkpoints="{run_directory}/checkpoints",
        **options,
    )
    play.wait_for(r"epoch 3/5000 ", 300)
    job = as_user(idle, "node1", "squeue --noheader --name=resumes --format=%i")
    as_user(idle, "node1", f"scontrol requeue {job}")
    play.wait()
    directory = "/home/muster/.muster/runs/resumes/node0"
    earlier = f"{directory}/earlier/0/ranks"
    drive.eventually("the second life runs", lambda: idle.exec("node1", ["test", "-e", earlier]).returncode == 0, 300)
    search = f"grep -rhoE 'starting after epoch [0-9]+' {directory}/ranks {directory}/launcher.log || true"
    drive.eventually("the second life trains", lambda: "after epoch" in root_shell(idle, "node1", search), 300, pause=1)
    assert int(root_shell(idle, "node1", search).split()[-1]) >= 2, "the first life has saved at least two epochs"
    assert "train_ddp.pt" in root_shell(idle, "node1", f"grep '\"checkpoint\":' {directory}/plan.json")
    logs = drive.start("logs.yml", idle.inventory, run_id="resumes")  # follows the run
    logs.wait_for(r"epoch \d+/5000")
    assert drive.run("stop.yml", idle.inventory, run_id="resumes").rc == 0
    logs.wait()
    drive.eventually("the job has ended", lambda: not has_job(idle, "resumes"), 60)
    assert root_shell(idle, "node1", f"ls {directory}/requeue 2> /dev/null || true") == "", "secrets remain"


def test_two_users_take_turns(idle: Lab) -> None:
    for host in idle.nodes:
        root_shell(idle, host.name, "getent passwd bob || useradd -m -u 2002 -s /bin/bash bob")
    bob_run = in_queue(idle, "theirs", "--until", "enough", launch_user="bob")
    bob_run.wait_for("I am rank 0 of 2 on node1, bob at home in /home/bob")
    muster_run = in_queue(idle, "ours", "--until", "enough")
    muster_run.wait_for(r"queued as Slurm job \d+, position 1, reason Resources")
    assert set(root_shell(idle, "node3", "squeue --noheader --format='%u %j %T'").splitlines()) == {
        "bob theirs RUNNING",
        "muster ours PENDING",
    }
    end_run(idle, "theirs", user="bob")
    assert bob_run.wait().rc == 0, bob_run.output
    muster_run.wait_for("step 1 of rank 0")
    end_run(idle, "ours")
    assert muster_run.wait().rc == 0, muster_run.output
    for node in NODES:
        leftovers = [item for item in idle.processes(node) if item.user == "bob"]
        assert leftovers == [], node


def test_preempted_run_saves_and_starts_again(idle: Lab) -> None:
    """A partition with priority preempts the run after the grace period, in which the run may save."""
    limits = {"launch_notice_grace": 5, "launch_stop_grace": 5}
    root_shell(
        idle, "node1", "scontrol create PartitionName=urgent Nodes=ALL PriorityTier=9 State=UP OverSubscribe=EXCLUSIVE"
    )
    root_shell(idle, "node1", "scontrol update PartitionName=training PreemptMode=REQUEUE GraceTime=60")
    try:
        play = in_queue(idle, "preempted", "--until", "enough", launch_slurm_requeue=1, **limits)
        play.wait_for("step 3 of rank 0")
        urgent = as_user(
            idle, "node1", "sbatch --parsable --partition=urgent --nodes=3 --output=/dev/null --wrap='sleep 600'"
        )
        play.wait()
        assert "Slurm will end the job" in play.output, play.output
        assert drive.record(idle, "preempted")["state"] == "interrupted"
        drive.eventually(
            "the urgent job has the nodes",
            lambda: as_user(idle, "node1", f"squeue --noheader --jobs={urgent} --format=%T") == "RUNNING",
            180,
        )
        assert has_job(idle, "preempted"), "it waits for another life"
        as_user(idle, "node1", f"scancel {urgent}")
        path = "/home/muster/.muster/runs/preempted/node0/earlier/0"
        drive.eventually("it runs again", lambda: idle.exec("node1", ["test", "-d", path]).returncode == 0, 300)
        end_run(idle, "preempted")
        drive.eventually("it ends", lambda: not has_job(idle, "preempted"), 120)
    finally:
        root_shell(idle, "node1", "scontrol update PartitionName=training PreemptMode=OFF GraceTime=0")
        idle.exec("node1", ["scancel", "--user=muster"])
        drive.eventually("jobs have ended", lambda: root_shell(idle, "node1", "squeue --noheader") == "", 120)
        root_shell(idle, "node1", "scontrol delete PartitionName=urgent")
