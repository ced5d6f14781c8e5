"""The disk with the run directories fills up during a run, as checkpoints do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

SMALL = "/small"


@pytest.fixture
def small_disks(lab: Lab, nodes: list[str]) -> Iterator[str]:
    """Yield the mount point of disks of 2 MiB for the runs of each node."""
    make = f"mkdir -p {SMALL} && mount -t tmpfs -o size=2m,uid=$(id -u muster),mode=0700 small {SMALL}"
    try:
        for name in nodes:
            created = lab.exec(name, ["sh", "-c", make])
            assert created.returncode == 0, created.stderr
        yield SMALL
    finally:
        for name in nodes:
            lab.exec(name, ["systemctl", "stop", "muster-*"])
            lab.exec(name, ["umount", SMALL])


@pytest.mark.parametrize("node", ["node1", pytest.param("node3", marks=pytest.mark.thorough)])
def test_full_disk_fails_the_run_and_is_reported(
    lab: Lab, nodes: list[str], small_disks: str, webhook: Any, node: str
) -> None:
    """The job fails because it cannot write; the supervisor continues, and reports how and why the job ended."""
    settings = {"launch_launcher": "env", "launch_node_directory": small_disks, "launch_skip": "disk-full"}
    settings["launch_notify"] = webhook.url
    page = 4096  # number of bytes by which a log may still grow on a full disk
    play = drive.launch(lab, "ticks.py", "--width", str(page), run_id=f"full-{node}", nnodes=4, **settings)
    play.wait_for(r"step 3 of rank 0\.\.")
    lab.exec(node, ["sh", "-c", f"cat /dev/zero > {small_disks}/fill"])
    play.wait()
    assert play.rc == 2, play.output
    number = nodes.index(node)
    assert f"  failed first: node {node} (node_rank {number}), rank {number}: " in play.output
    output = f"  on {node} writing to the run's directory failed at times: No space left on device; free up space"
    assert output in play.last_lines(), play.output
    assert drive.record(lab, f"full-{node}")["nodes"][number]["state"] == "ended"
    drive.nothing_left(lab, nodes, within=10)
    listing = lab.exec(node, ["find", small_disks, "-printf", "%f\n"])
    names = set(listing.stdout.split())
    assert listing.returncode == 0 and "plan.json" in names, listing
    assert not names & {"token", "environment.json", "notify.json"}, "secrets are left"
    (message,) = webhook.messages("ended")
    assert message["state"] == "failed" and f"on {node}" in message["text"], message
