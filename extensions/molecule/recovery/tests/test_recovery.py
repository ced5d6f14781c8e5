"""A run restarts automatically: nodes lose power, their network or a rank, and the job continues."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

TRAINING = drive.CHECKOUT / "examples" / "ddp" / "train_ddp.py"
QUICK = {"launch_skip": ["own-name-loopback"], "launch_fetch_record": True}


def test_spare_replaces_powered_off_node_and_the_curve_continues(lab: Lab, nodes: list[str]) -> None:
    arguments = ["--epochs", "40", "--checkpoint-every", "1", "--resume"]
    options: dict[str, Any] = {"nnodes": 3, "launch_restarts": 2, "launch_spares": 1, **QUICK}
    play = drive.start(
        "launch.yml", lab.inventory, run_id="spare", launch_script=str(TRAINING), launch_args=arguments, **options
    )
    play.wait_for(r"epoch 3/40 ", timeout=300)  # four processes import torch
    lab.power_off("node2")
    play.wait_for(r"attempt 1 starts: node2 was lost after .*; node4 joins; 2 restarts allowed, 1 remain")
    play.wait()
    assert play.rc == 0, play.output
    epochs = [int(number) for number in re.findall(r"^epoch (\d+)/40 ", play.output, re.MULTILINE)]
    starts = [index for index in range(1, len(epochs)) if epochs[index] <= epochs[index - 1]]
    assert epochs[-1] == 40 and len(starts) <= 1, "at most one epoch is repeated"
    assert all(epochs[start - 1] - epochs[start] <= 1 for start in starts), epochs
    resumed = re.search(r"starting after epoch (\d+) ", play.output[play.output.index("attempt 1 starts") :])
    assert resumed is not None and int(resumed[1]) >= 2, play.output
    verdict = drive.record(lab, "spare")
    first, second = verdict["attempts"]
    assert (first["end_class"], first["node"], second["nodes"]) == ("node_lost", "node2", ["node1", "node4", "node3"])
    assert "  attempts: 2, " in play.output and verdict["state"] == "succeeded"
    logs = drive.run("logs.yml", lab.inventory, run_id="spare", attempt=1, rank=1)
    assert logs.rc == 0 and "[muster] attempt 1, rank 1, on node4:" in logs.output, logs.output
    logs = drive.run("logs.yml", lab.inventory, run_id="spare", attempt=0, rank=1)
    assert logs.rc == 2 and "or the node is lost" in logs.output, "rank 1 was on node2 then"
    drive.nothing_left(lab, ["node1", "node3", "node4"], within=15)


def test_temporarily_isolated_node_rejoins_the_run(lab: Lab, nodes: list[str]) -> None:
    options: dict[str, Any] = {"nnodes": 3, "launch_launcher": "env", "launch_restarts": 1, **QUICK}
    play = drive.launch(lab, "ticks.py", "--until", "end", run_id="returns", **options)
    play.wait_for(r"step 3 of rank 0")
    lab.cut_off("node3")
    drive.eventually("waits for node3", lambda: "restarting" in status(lab, "node1", "returns"), 60)
    lab.restore("node3")
    play.wait_for(r"attempt 1 starts: node3 was lost")
    play.wait_for(r"all 3 nodes have checked in(.|\n)*all 3 nodes have checked in")
    for name in nodes[:3]:
        lab.exec(name, ["sh", "-c", "for one in /home/muster/.muster/runs/returns/node*; do touch $one/end; done"])
    play.wait()
    assert play.rc == 0, play.output
    assert drive.record(lab, "returns")["attempts"][1]["nodes"] == ["node1", "node2", "node3"]
    drive.nothing_left(lab, nodes, within=15)


def end_job(lab: Lab, run_id: str, *names: str) -> None:
    """Let the job of a run succeed on these nodes."""
    for name in names:
        lab.exec(name, ["sh", "-c", f"for one in /home/muster/.muster/runs/{run_id}/node*; do touch $one/end; done"])


@pytest.mark.thorough  # test_succession.py of the supervisor; the test below isolates the first node
def test_next_node_leads_the_run_after_the_first_is_powered_off(lab: Lab, nodes: list[str]) -> None:
    options: dict[str, Any] = {"nnodes": 3, "launch_launcher": "torchrun", "launch_restarts": 2, **QUICK}
    arguments = ["--epochs", "40", "--checkpoint-every", "1", "--resume"]
    play = drive.start(
        "launch.yml",
        lab.inventory,
        run_id="succession",
        launch_script=str(TRAINING),
        launch_args=arguments,
        launch_spares=1,
        **options,
    )
    play.wait_for(r"epoch 3/40 ", timeout=300)
    lab.power_off("node1")
    play.wait_for(r"node2 will lead the run from now on")
    play.wait_for(r"attempt 1 starts: node1 was lost after .*; node4 joins; 2 restarts allowed, 1 remain")
    play.wait_for(r"attempt 1 starts(.|\n)*epoch 2/40 ", timeout=300)
    status_play = drive.run("status.yml", lab.inventory, run_id="succession")
    assert "run succession, attempt 1" in status_play.output and "unreachable" in status_play.output, status_play.output
    play.wait()
    assert play.rc == 0, play.output
    verdict = drive.record(lab, "succession")
    first, second = verdict["attempts"]
    assert (first["end_class"], first["node"], second["nodes"]) == ("node_lost", "node1", ["node2", "node4", "node3"])
    assert verdict["state"] == "succeeded"
    drive.nothing_left(lab, ["node2", "node3", "node4"], within=15)


@pytest.mark.parametrize(
    "directions",
    [
        ("incoming", "outgoing"),
        pytest.param(("incoming",), marks=pytest.mark.thorough),
        pytest.param(("outgoing",), marks=pytest.mark.thorough),
    ],
)
def test_isolated_first_node_runs_nothing_after_it_returns(
    lab: Lab, nodes: list[str], directions: tuple[str, ...]
) -> None:
    run_id = f"cut-{'-'.join(directions)}"
    options: dict[str, Any] = {"nnodes": 3, "launch_launcher": "env", "launch_restarts": 1, **QUICK}
    play = drive.launch(lab, "ticks.py", "--until", "end", run_id=run_id, launch_restart_min_nodes=2, **options)
    play.wait_for(r"step 3 of rank 0")
    lab.cut_off("node1", directions=directions)
    play.wait_for(r"node2 will lead the run from now on", timeout=300)
    play.wait_for(r"attempt 1 starts: node1 was lost")
    lab.restore("node1")
    drive.nothing_left(lab, ["node1"], within=60)
    assert lab.exec("node1", ["sh", "-c", f"ls -d /home/muster/.muster/runs/{run_id}/node0/attempt-1"]).returncode
    play.wait_for(r"attempt 1 starts(.|\n)*step 3 of rank 0")
    end_job(lab, run_id, "node2", "node3")
    play.wait()
    assert play.rc == 0, play.output
    assert drive.record(lab, run_id)["attempts"][1]["nodes"] == ["node2", "node3"]
    drive.nothing_left(lab, nodes, within=15)


@pytest.mark.thorough  # supervisor/test_succession.py and failures/test_attempts.py in tests/unit
def test_loss_of_the_first_of_two_nodes_ends_the_run_with_a_command_to_continue(lab: Lab, nodes: list[str]) -> None:
    options: dict[str, Any] = {"nnodes": 2, "launch_launcher": "env", "launch_restarts": 1, **QUICK}
    play = drive.launch(lab, "ticks.py", run_id="first", **options)
    play.wait_for(r"losing it ends the run: two nodes have no majority")
    play.wait_for(r"step 3 of rank 0")
    lab.power_off("node1")
    play.wait()
    assert play.rc == 2, play.output
    command = re.search(r"continue with: .*launch\.yml.* -e '(\{.*\})'", play.output)
    assert command is not None, play.output
    assert json.loads(command[1])["nodes"] == "node2"
    drive.nothing_left(lab, ["node2"], within=15)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        # tests/unit/plugins/module_utils/supervisor/test_attempt_plan.py checks the attempts for all launchers
        pytest.param(
            "c10d",
            {"launch_launcher": "torchrun", "launch_rdzv_backend": "c10d"},
            marks=pytest.mark.thorough,
        ),
        pytest.param("accelerate", {"launch_launcher": "accelerate"}, marks=pytest.mark.thorough),
        pytest.param("deepspeed", {"launch_launcher": "deepspeed"}, marks=pytest.mark.thorough),
        pytest.param(
            "pdsh",
            {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "pdsh"},
            marks=pytest.mark.thorough,
        ),
        ("mpirun", {"launch_launcher": "mpirun"}),
    ],
)
def test_each_launcher_continues_without_a_lost_node(
    lab: Lab, nodes: list[str], name: str, options: dict[str, object]
) -> None:
    settings = {"nnodes": 3, "launch_restarts": 1, "launch_restart_min_nodes": 2, **QUICK}
    play = drive.launch(lab, "loop.py", run_id=f"fewer-{name}", **settings, **options)
    play.wait_for(r"step 3 sum 3 world 3")
    lab.exec("node2", ["kill", "-9", str(drive.pid_of(lab, "node2", "supervisor.py"))])
    play.wait_for(r"attempt 1 starts: node2 was lost after .*; 2 of 3 nodes")
    play.wait_for(r"step 3 sum 2 world 2")
    stopped = drive.run("stop.yml", lab.inventory, run_id=f"fewer-{name}")
    assert stopped.rc == 0, stopped.output
    play.wait()
    drive.nothing_left(lab, nodes, within=15)


def status(lab: Lab, node: str, run_id: str) -> str:
    return lab.exec(node, ["sh", "-c", f"cat /home/muster/.muster/runs/{run_id}/node*/status.json"]).stdout
