"""A run ends on all nodes or on none, with each launcher."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

RUNS = "/home/muster/.muster/runs"
LAUNCHERS: dict[str, dict[str, Any]] = {
    "mpirun": {"launch_launcher": "mpirun"},
    "deepspeed": {"launch_launcher": "deepspeed"},
    "pdsh": {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "pdsh"},
    "openmpi": {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "openmpi"},
    "accelerate": {"launch_launcher": "accelerate", "nproc_per_node": 1},
}
FEW = ("mpirun",)  # the others end like mpirun or like torchrun, which has its own test; pdsh is stopped below


def launch_steps(lab: Lab, launcher: str, run_id: str, *args: str) -> drive.Play:
    """Launch steps.py, and wait until all ranks have completed some steps."""
    play = drive.launch(lab, "steps.py", *args, run_id=run_id, **LAUNCHERS[launcher])
    play.wait_for(r"step 3 world ")

    def everywhere() -> bool:
        return all(any("steps.py" in item.command for item in drive.of_run(lab, name)) for name in ("node2", "node3"))

    drive.eventually("ranks on node2 and node3", everywhere, 120)
    return play


@pytest.mark.parametrize(
    "launcher", [name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in LAUNCHERS]
)
def test_exception_in_a_rank_ends_run_and_is_reported(lab: Lab, nodes: list[str], launcher: str) -> None:
    last = 2 if launcher == "accelerate" else 3
    play = drive.launch(
        lab, "steps.py", "--raise-on", str(last), "--stubborn", run_id=f"raises-{launcher}", **LAUNCHERS[launcher]
    )
    play.wait_for(r"step 3 ")
    drive.nothing_left(lab, nodes, within=10)
    play.wait()
    assert play.rc == 2, play.output
    for word in ("node3", f"rank {last}", "ValueError: boom at step 5"):
        assert word in play.last_lines(), play.output
    failure = drive.record(lab, f"raises-{launcher}")["first_failure"]
    assert (failure["node"], failure["rank"], failure["error"]) == ("node3", last, "ValueError: boom at step 5")
    assert "boom at step 5" in lab.exec("node3", ["cat", failure["log"]]).stdout


@pytest.mark.thorough  # test_lifeline.py of the supervisor
@pytest.mark.parametrize("rank", [0, 1])
def test_exception_in_a_rank_ends_a_rank_that_ignores_sigterm(lab: Lab, nodes: list[str], rank: int) -> None:
    """torchrun alone would wait 30 s for the other rank."""
    run_id = f"raises-torchrun-{rank}"
    play = drive.launch(lab, "steps.py", "--raise-on", str(rank), "--stubborn", run_id=run_id)
    play.wait_for(r"step 3 ")
    drive.nothing_left(lab, nodes, within=10)
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, run_id)["first_failure"]
    assert (failure["node"], failure["rank"], failure["error"]) == ("node1", rank, "ValueError: boom at step 5")


@pytest.mark.thorough  # the secrets test ends by stopping pdsh
@pytest.mark.parametrize("launcher", ["mpirun", "pdsh"])
def test_stop_ends_run_on_all_nodes(lab: Lab, nodes: list[str], launcher: str) -> None:
    play = launch_steps(lab, launcher, f"stop-{launcher}", "--stubborn", "--detach")
    stop = drive.run("stop.yml", lab.inventory, run_id=f"stop-{launcher}")
    assert stop.rc == 0, stop.output
    for name in nodes:
        assert drive.traces(lab, name) == ""
    play.wait()
    assert drive.record(lab, f"stop-{launcher}")["state"] == "stopped"


@pytest.mark.thorough  # molecule/launch cuts a node off; in molecule/recovery, mpirun loses a node
@pytest.mark.parametrize("launcher", ["mpirun", "pdsh"])
def test_powered_off_node_ends_the_run(lab: Lab, nodes: list[str], launcher: str) -> None:
    play = launch_steps(lab, launcher, f"off-{launcher}")
    lab.power_off("node3")
    drive.nothing_left(lab, ["node1", "node2"], within=20)
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, f"off-{launcher}")["first_failure"]
    assert failure["node"] == "node3" and "lost" in failure["error"], failure


@pytest.mark.parametrize(
    ("launcher", "node", "word", "message"),
    [
        pytest.param("mpirun", "node3", "orted -mca", "Killed", marks=pytest.mark.thorough),
        ("mpirun", "node1", "mpirun --prefix", "SIGKILL"),
        pytest.param("mpirun", "node3", "supervisor.py", "lost", marks=pytest.mark.thorough),
        pytest.param(
            *("deepspeed", "node3", "deepspeed.launcher.launch"),
            "the launcher ended with exit code 0, but rank 3 did not",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *("pdsh", "node1", "pdsh -S", "the launcher ended with exit code 0, but rank 0 did not"),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_killed_launcher_or_supervisor_ends_the_run(  # noqa: PLR0913
    lab: Lab, nodes: list[str], launcher: str, node: str, word: str, message: str
) -> None:
    run_id = f"kill-{launcher}-{node}-{len(word)}"  # the name itself would appear in the supervisor's command line
    play = launch_steps(lab, launcher, run_id)
    lab.exec(node, ["kill", "-9", str(drive.pid_of(lab, node, word))])
    drive.nothing_left(lab, nodes, within=10)
    play.wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, run_id)["first_failure"]
    assert failure["node"] == node and message in failure["error"], failure


def test_no_secret_is_in_a_command_line(lab: Lab, nodes: list[str]) -> None:
    """DeepSpeed exports MLFLOW_* and PYTHON* variables to other nodes in command lines."""
    secret = "s3cr3t $HOME 'x'\nline"
    run_id = "secret-pdsh"
    environment = {"MLFLOW_TRACKING_PASSWORD": secret, "PYTHONTOKEN": secret, "NCCL_TOKEN": secret}
    play = drive.launch(
        lab,
        "steps.py",
        *("--show", *environment),
        run_id=run_id,
        launch_environment=environment,
        **LAUNCHERS["pdsh"],
    )
    play.wait_for(r"step 3 world ")
    for name in nodes:
        logs = f"cat {RUNS}/{run_id}/node*/launcher.log"
        for command, word in (("ps -eww -o args", "steps.py"), (logs, "spawned with command")):
            completed = lab.exec(name, ["sh", "-c", command])
            assert completed.returncode == 0 and word in completed.stdout, completed
            assert "s3cr3t" not in completed.stdout
    for word in environment:  # although it arrived unchanged where it was needed
        assert f"{word}={secret!r}\n" in lab.exec("node3", ["sh", "-c", f"cat {RUNS}/{run_id}/node2/ranks/0/*"]).stdout
    stop = drive.run("stop.yml", lab.inventory, run_id=run_id)
    assert stop.rc == 0, stop.output
    for name in nodes:
        assert drive.traces(lab, name) == ""
    play.wait()
    assert drive.record(lab, run_id)["state"] == "stopped"
