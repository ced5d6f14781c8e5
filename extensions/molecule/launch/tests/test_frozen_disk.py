"""The file system with the run directory freezes during a run, like a network file system whose server is down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive

DISK = "/frozen"


@pytest.fixture
def disks(lab: Lab, nodes: list[str]) -> Iterator[str]:
    """Yield the mount point of a separate file system for the runs of each node."""
    owner = "$(id -u muster):$(id -g muster)"
    make = f"mkdir -p {DISK} && truncate -s 32M /frozen.img && mkfs.ext4 -q -E root_owner={owner} /frozen.img"
    try:
        for name in nodes[:2]:
            created = lab.exec(name, ["sh", "-c", f"{make} && mount -o loop /frozen.img {DISK} && chmod 0700 {DISK}"])
            assert created.returncode == 0, created.stderr
        yield DISK
    finally:
        for name in nodes[:2]:
            lab.exec(name, ["fsfreeze", "--unfreeze", DISK])
            lab.exec(name, ["systemctl", "stop", "muster-*"])
            lab.exec(name, ["umount", DISK])


@pytest.mark.thorough  # test_lifeline.py of the supervisor stops a supervisor, which has the same effect
def test_frozen_disk_ends_the_run(lab: Lab, nodes: list[str], disks: str) -> None:
    """Processes that wait for the disk cannot be killed, not even by SIGKILL; all others end on both nodes."""
    both = nodes[:2]
    settings = {"launch_launcher": "env", "launch_node_directory": disks, "launch_skip": "disk-full"}
    play = drive.launch(lab, "ticks.py", "--detach", run_id="frozen", nnodes=2, **settings)

    def children() -> list[str]:
        return [item.command for item in lab.processes("node2") if "sleep 432" in item.command]

    play.wait_for(r"step 3 of rank 0")
    drive.eventually("the job of node2 has started all that it starts", lambda: len(children()) == 2, 60)
    assert lab.exec("node2", ["fsfreeze", "--freeze", disks]).returncode == 0
    drive.eventually("what the job has started on node2 is ended", lambda: not children(), 30, lambda: str(children()))
    drive.nothing_left(lab, ["node1"], within=10)
    play.wait()
    assert play.rc == 2 and "node node2" in play.last_lines(), play.output
    assert drive.record(lab, "frozen")["first_failure"]["node"] == "node2"
    assert lab.exec("node2", ["fsfreeze", "--unfreeze", disks]).returncode == 0
    drive.nothing_left(lab, both, within=10)
