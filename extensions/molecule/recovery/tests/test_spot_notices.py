"""A spot machine is reclaimed after a notice from its metadata service: all ranks save, and the run continues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.lab.shared_directory import share
from tests.support import drive

pytestmark = pytest.mark.thorough  # supervisor/test_leader_notices.py and test_notice_sources.py in tests/unit
SHARED = "/home/muster/checkpoints-of-all"
NOTICE = "/run/end-of-this-machine"
MACHINE = f"""
mkdir -p /run/firmware/dmi/id
echo "Amazon EC2" > /run/firmware/dmi/id/sys_vendor
mount -t overlay overlay -o lowerdir=/run/firmware:/sys/class /sys/class
ip address add 169.254.169.254/32 dev lo
systemd-run --unit=metadata --collect python3 {drive.JOBS}/metadata_service.py {NOTICE}
"""
NO_MACHINE = f"systemctl stop metadata; ip address del 169.254.169.254/32 dev lo; umount /sys/class; rm -f {NOTICE}"


@pytest.fixture
def machines(lab: Lab, nodes: list[str]) -> Iterator[list[str]]:
    """Make the nodes look like EC2 instances, with a shared checkpoint directory."""
    directory = lab.inventory.parent / "checkpoints"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    for path in directory.iterdir():
        path.unlink()
    share(lab, directory, SHARED)
    for name in nodes:
        drive.output_of(lab, name, "sh", "-ec", MACHINE)
    yield nodes
    for name in nodes:
        lab.exec(name, ["sh", "-c", NO_MACHINE])


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_run_saves_and_continues_without_a_machine_that_is_taken_away(lab: Lab, machines: list[str], node: str) -> None:
    run_id, remaining = f"spot-{node}", [name for name in machines[:3] if name != node]
    play = drive.launch(
        lab,
        "survivor.py",
        *("--checkpoints", SHARED),
        run_id=run_id,
        nnodes=3,
        launch_launcher="env",
        launch_restarts=1,
        launch_restart_min_nodes=2,
        launch_checkpoints=SHARED,
        launch_skip=["own-name-loopback", "checkpoint-node-local"],
    )
    play.wait_for(r"step 3 of attempt 0, rank 0", timeout=300)
    drive.output_of(lab, node, "touch", NOTICE)
    play.wait_for(rf"{node}: Amazon EC2 will terminate it in \d+ s \(spot interruption\)")
    play.wait_for(r"attempt 1 starts: .*; 2 of 3 nodes(.|\n)*step 3 of attempt 1, rank 0", timeout=300)
    assert "attempt 1 of rank 0 starts from step-1000.pt" in play.output, play.output
    lab.power_off(node)
    for name in remaining:
        command = f"for path in /home/muster/.muster/runs/{run_id}/node*; do touch $path/end; done"
        drive.output_of(lab, name, "sh", "-c", command)
    play.wait()
    assert play.rc == 0, play.output
    first, second = drive.record(lab, run_id)["attempts"]
    assert (first["end_class"], first["node"], second["nodes"]) == ("interrupted", node, remaining)
    print(f"\n{run_id}: next attempt {second['started'] - first['ended']:.1f} s")
    drive.nothing_left(lab, remaining, within=15)
