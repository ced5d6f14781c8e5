"""Slurm 24.11 of Debian 13, whose unit, cgroups and messages differ from those of Debian 12."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.lab.hosts import down
from tests.support import drive, slurm_hosts

pytestmark = pytest.mark.thorough
SETTINGS = {"slurm_enabled": True, "slurm_gpu_files": "/dev/fakegpu[0-9]*"}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Lab]:
    """Yield two hosts with Debian 13, each with a fake GPU."""
    lab = Lab.up(nodes=2, name="slurm13", suite="trixie")
    shutil.rmtree(lab.inventory.parent / "runs", ignore_errors=True)  # records from an earlier scenario
    try:
        for node in lab.nodes:
            # a new image that has no package lists yet
            command = "mknod /dev/fakegpu0 c 1 3 && rm -rf /var/lib/apt/lists/*"
            assert lab.exec(node.name, ["bash", "-c", command]).returncode == 0
        yield lab
    finally:
        down(lab.name)


def site(lab: Lab) -> drive.Play:
    return drive.run("site.yml", lab.inventory, options=("--tags", "slurm"), timeout=540, **SETTINGS)


def test_cluster_runs_jobs_and_launches_and_drains_an_unfit_node(hosts: Lab) -> None:
    play = site(hosts)
    assert play.rc == 0, play.output
    command = "cd / && runuser --user=muster -- srun --nodes=2 --gpus-per-node=1 printenv CUDA_VISIBLE_DEVICES"
    assert hosts.exec("node2", ["bash", "-c", command]).stdout.split() == ["0", "0"]
    play = site(hosts)
    assert play.rc == 0 and "changed=0" in play.output, play.output

    play = slurm_hosts.in_queue(hosts, "ticks", "--until", "enough", launch_python="/usr/bin/python3")
    play.wait_for("step 1 of rank 0")
    slurm_hosts.end_run(hosts, "ticks")
    assert play.wait().rc == 0, play.output
    drive.nothing_left(hosts, ["node1", "node2"], within=60)
    drive.eventually("the job has ended", lambda: not slurm_hosts.has_job(hosts, "ticks"), 60)

    check = "/usr/local/lib/muster/slurm/health-check"
    hosts.exec("node2", ["bash", "-c", f"rm /dev/fakegpu0; {check}"])
    node_state = hosts.exec("node1", ["scontrol", "show", "node", "node2", "--oneliner"]).stdout
    assert "+DRAIN" in node_state and "Reason=muster: gpu-missing: no device /dev/fakegpu0" in node_state
    hosts.exec("node2", ["bash", "-c", f"mknod /dev/fakegpu0 c 1 3; {check}"])
    assert "+DRAIN" not in hosts.exec("node1", ["scontrol", "show", "node", "node2", "--oneliner"]).stdout
