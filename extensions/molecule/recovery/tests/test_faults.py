"""Faults between and during the attempts of a run, on test hosts, with a job without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

pytestmark = pytest.mark.thorough  # tests/unit/plugins/module_utils/supervisor has the same faults on one machine
CHECKPOINTS = "/home/muster/checkpoints"
SKIP = ["own-name-loopback", "checkpoint-node-local"]
# a file in the format that torch.save writes, which belongs to the job's user
SAVE = """
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    archive.writestr("archive/data.pkl", b"weights" * 10**6)
os.chown(sys.argv[1], *os.stat(os.path.dirname(sys.argv[1]))[4:6])
"""
FAULTS = {"at once": (), "twice": (r"attempt 1 starts",), "while an attempt starts": (r"waits for node",)}


@pytest.fixture
def checkpoints(lab: Lab, nodes: list[str]) -> Iterator[str]:
    """Yield an empty checkpoint directory on the disk of each node."""
    for name in nodes:
        drive.output_of(lab, name, "install", "-d", "-o", "muster", CHECKPOINTS)
    yield CHECKPOINTS
    for name in nodes:
        lab.exec(name, ["rm", "-rf", CHECKPOINTS])


def launch(lab: Lab, run_id: str, *arguments: str, **options: Any) -> drive.Play:
    """Launch the job, which saves to the disks of the nodes."""
    return drive.launch(
        lab,
        "survivor.py",
        *("--checkpoints", CHECKPOINTS, *arguments),
        run_id=run_id,
        launch_launcher="env",
        launch_checkpoints=CHECKPOINTS,
        launch_skip=SKIP,
        **options,
    )


def kill_rank(lab: Lab, node: str) -> None:
    lab.exec(node, ["kill", "-9", str(drive.rank_pid(lab, node, "survivor.py"))])


def end_job(lab: Lab, run_id: str, *names: str) -> None:
    """Let the job of a run succeed on these nodes."""
    command = f"for path in /home/muster/.muster/runs/{run_id}/node*; do touch $path/end; done"
    for name in names:
        drive.output_of(lab, name, "sh", "-c", command)


def print_phases(lab: Lab, run_id: str) -> list[dict[str, Any]]:
    """Print the seconds of each phase between two attempts; return the attempts."""
    attempts: list[dict[str, Any]] = drive.record(lab, run_id)["attempts"]
    for first, second in zip(attempts, attempts[1:], strict=False):
        noticed = first.get("noticed") or first["ended"]
        ended, next_start = first["ended"] - noticed, second["started"] - first["ended"]
        silent = first.get("silent") or 0.0
        print(f"\n{run_id}: silent {silent:.1f} s, ended {ended:.1f} s, next attempt {next_start:.1f} s")
    return attempts


@pytest.mark.usefixtures("checkpoints")
def test_killed_rank_restarts_the_run_until_no_restarts_are_left(lab: Lab, nodes: list[str]) -> None:
    options: dict[str, Any] = {"nnodes": 2, "launch_restarts": 1, "launch_restart_when": ["rank_failed"]}
    play = launch(lab, "killed", **options)
    play.wait_for(r"step 3 of attempt 0", timeout=300)
    kill_rank(lab, "node2")
    play.wait_for(r"attempt 1 starts: .*1 restart allowed, 0 remain(.|\n)*step 3 of attempt 1, rank 0")
    kill_rank(lab, "node2")
    play.wait()
    assert play.rc == 2 and "all 1 restarts are used up (launch_restarts)" in play.output, play.output
    first, second = print_phases(lab, "killed")
    assert first["nodes"] == second["nodes"] == ["node1", "node2"]
    drive.nothing_left(lab, nodes, within=15)


def test_run_is_not_restarted_after_an_exception_in_the_script(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(
        lab, "ticks.py", run_id="raises", nnodes=2, launch_launcher="env", launch_restarts=2, launch_skip=SKIP
    )
    play.wait_for(r"step 3 of rank 0", timeout=300)
    lab.exec("node2", ["kill", "-USR1", str(drive.rank_pid(lab, "node2", "ticks.py"))])
    play.wait()
    assert play.rc == 2 and "not restarted: the same error would end the next attempt" in play.output, play.output
    assert len(drive.record(lab, "raises")["attempts"]) == 1
    drive.nothing_left(lab, nodes, within=15)


@pytest.mark.usefixtures("checkpoints")
def test_run_continues_after_the_loss_of_a_waiting_spare(lab: Lab, nodes: list[str]) -> None:
    play = launch(lab, "spare-lost", nnodes=2, launch_spares=1, launch_restarts=1)
    play.wait_for(r"step 3 of attempt 0, rank 0", timeout=300)
    lab.power_off("node3")
    play.wait_for(r"node3 .*the run continues with one fewer spare")
    end_job(lab, "spare-lost", "node1", "node2")
    play.wait()
    assert play.rc == 0 and len(drive.record(lab, "spare-lost")["attempts"]) == 1, play.output
    drive.nothing_left(lab, ["node1", "node2"], within=15)


@pytest.mark.usefixtures("checkpoints")
def test_user_stops_a_run_between_two_attempts(lab: Lab, nodes: list[str]) -> None:
    play = launch(lab, "between", nnodes=3, launch_restarts=1, launch_restart_min_nodes=2)
    play.wait_for(r"step 3 of attempt 0, rank 0", timeout=300)
    lab.power_off("node3")
    status = "cat /home/muster/.muster/runs/between/node*/status.json"
    drive.eventually("the run restarts", lambda: '"restarting"' in lab.exec("node1", ["sh", "-c", status]).stdout, 60)
    stopped = drive.run("stop.yml", lab.inventory, run_id="between")
    assert "stopped" in stopped.output, stopped.output
    play.wait()
    verdict = drive.record(lab, "between")
    assert verdict["state"] == "stopped" and "attempt 1 starts" not in play.output, play.output
    drive.nothing_left(lab, ["node1", "node2"], within=15)


def test_torn_checkpoint_on_a_node_is_replaced_by_another_nodes_copy(
    lab: Lab, nodes: list[str], checkpoints: str
) -> None:
    play = launch(lab, "torn", nnodes=2, launch_restarts=1, launch_restart_when=["rank_failed"])
    play.wait_for(r"attempt 0 of rank 0 starts anew(.|\n)*step 3 of attempt 0, rank 0", timeout=300)
    path = f"{checkpoints}/step-40.pt"
    for name in ("node1", "node2"):
        drive.output_of(lab, name, "python3", "-c", SAVE, path)
    size = int(drive.output_of(lab, "node1", "stat", "-c", "%s", path))
    drive.output_of(lab, "node2", "truncate", "-s", "-200", path)
    kill_rank(lab, "node2")
    play.wait_for(rf"attempt 1 of rank 0 starts from step-40.pt, {size} bytes")
    assert int(drive.output_of(lab, "node2", "stat", "-c", "%s", path)) == size
    play.wait_for(r"step 3 of attempt 1, rank 0")
    end_job(lab, "torn", "node1", "node2")
    play.wait()
    assert play.rc == 0 and re.search(r"copying step 40 \(step-40.pt\)", play.output), play.output
    print_phases(lab, "torn")
    drive.nothing_left(lab, nodes, within=15)


@pytest.mark.usefixtures("checkpoints")
def test_all_ranks_save_on_request_and_again_before_the_run_ends(lab: Lab, nodes: list[str]) -> None:
    play = launch(lab, "saves", nnodes=3, launch_restarts=1)
    play.wait_for(r"step 3 of attempt 0, rank 0", timeout=300)
    saved = drive.run("save.yml", lab.inventory, run_id="saves")
    assert saved.rc == 0, saved.output
    play.wait_for(r"rank 0 has saved at notice 1")
    for number in range(3):
        path = f"/home/muster/.muster/runs/saves/node{number}/launcher.log"
        drive.output_of(lab, nodes[number], "grep", f"rank {number} has saved at notice 1", path)
    ended = drive.run("save.yml", lab.inventory, run_id="saves", save_stop=True)
    assert ended.rc == 0, ended.output
    play.wait()
    verdict = drive.record(lab, "saves")
    assert (play.rc, verdict["state"], len(verdict["attempts"])) == (2, "interrupted", 1), play.output
    for name in nodes[:3]:
        drive.output_of(lab, name, "test", "-e", f"{CHECKPOINTS}/step-2000.pt")
    drive.nothing_left(lab, nodes, within=15)


@pytest.mark.usefixtures("checkpoints")
def test_hang_restarts_the_run_on_the_same_nodes(lab: Lab, nodes: list[str]) -> None:
    options = {"launch_restarts": 1, "launch_on_hang": "stop", "launch_hang_timeout": 10, "nnodes": 1}
    play = launch(lab, "hangs", *("--hang-at", "3"), **options)
    play.wait_for(r"attempt 1 starts: (.|\n)*step 5 of attempt 1, rank 0", timeout=300)
    end_job(lab, "hangs", "node1")
    play.wait()
    assert play.rc == 0, play.output
    first, second = print_phases(lab, "hangs")
    assert (first["end_class"], second["nodes"]) == ("hang", ["node1"])
    drive.nothing_left(lab, nodes, within=15)


@pytest.mark.parametrize("first", ["node1", "node4"])
@pytest.mark.parametrize("when", FAULTS)
@pytest.mark.usefixtures("checkpoints")
def test_majority_of_five_nodes_survives_the_loss_of_two(lab: Lab, nodes: list[str], first: str, when: str) -> None:
    if len(nodes) < 5:
        pytest.skip("needs five test hosts")
    run_id, last = f"{first}-{when.replace(' ', '-')}", [name for name in nodes if name not in (first, "node5")]
    play = launch(lab, run_id, nnodes=5, launch_restarts=2, launch_restart_min_nodes=3)
    play.wait_for(r"step 3 of attempt 0, rank 0", timeout=300)
    lab.power_off(first)
    for text in FAULTS[when]:
        play.wait_for(text)
    lab.power_off("node5")
    play.wait_for(r"attempt \d starts: .*; 3 of 5 nodes(.|\n)*step 3 of attempt \d, rank 0", timeout=300)
    end_job(lab, run_id, *last)
    play.wait()
    assert play.rc == 0, play.output
    attempts = print_phases(lab, run_id)
    assert attempts[-1]["nodes"] == last and {item["end_class"] for item in attempts[:-1]} == {"node_lost"}
    drive.nothing_left(lab, last, within=15)
