"""A node whose checkpoint disk is full at the end of an attempt is replaced by a spare in the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

DIRECTORY = "/home/muster/checkpoints"


@pytest.fixture
def small_disk(lab: Lab, nodes: list[str]) -> Iterator[None]:
    """Put the checkpoints of node2 on a disk of 300 MiB."""
    for name in nodes:
        drive.output_of(lab, name, "install", "-d", "-o", "muster", DIRECTORY)
    drive.output_of(lab, "node2", "mount", "-t", "tmpfs", "-o", "size=300m,uid=1000", "tmpfs", DIRECTORY)
    yield
    lab.exec("node2", ["umount", DIRECTORY])


@pytest.mark.thorough
@pytest.mark.usefixtures("small_disk")
def test_spare_takes_over_from_a_node_whose_disk_is_full(lab: Lab, nodes: list[str]) -> None:
    options: dict[str, Any] = {"nnodes": 2, "launch_spares": 1, "launch_restarts": 1, "launch_launcher": "env"}
    play = drive.launch(
        lab,
        "ticks.py",
        *("--until", "end"),
        run_id="full-disk",
        launch_checkpoints=DIRECTORY,
        launch_restart_when=["rank_failed"],
        launch_skip=["own-name-loopback", "checkpoint-node-local"],
        **options,
    )
    play.wait_for(r"step 3 of rank 0")
    drive.output_of(lab, "node2", "sh", "-c", f"head -c 200M /dev/zero > {DIRECTORY}/other")
    lab.exec("node2", ["kill", "-9", str(drive.rank_pid(lab, "node2", "ticks.py"))])
    play.wait_for(
        r"node2 cannot take part in attempt 1: \d+ MiB is free in the checkpoint directory .*; at least 256 MiB"
    )
    play.wait_for(r"attempt 1 starts: .*; node3 joins; 1 restart allowed, 0 remain(.|\n)*step 3 of rank 0")
    for name in ("node1", "node3"):
        lab.exec(name, ["sh", "-c", "for item in /home/muster/.muster/runs/full-disk/node*; do touch $item/end; done"])
    play.wait()
    assert play.rc == 0, play.output
    assert drive.record(lab, "full-disk")["attempts"][1]["nodes"] == ["node1", "node3"]
    drive.nothing_left(lab, nodes, within=15)
