"""Jobs in containers of real engines, in a step: containers, which Slurm does not track, end with their run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell, user_shell
from tests.support.image_hosts import VFS
from tests.support.image_layer import MOUNTS, make_layer
from tests.support.slurm_hosts import as_user, has_job, in_queue, pid_of, site

pytestmark = pytest.mark.thorough
NODES = ["node1", "node2"]
IMAGE = "localhost/small"
TAR, ARCHIVE = "/var/tmp/root.tar", "/var/tmp/small.tar"
APT = "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends"


@pytest.fixture(scope="module")
def engines(lab: Lab) -> Iterator[Lab]:
    """Yield two hosts of a cluster with both engines and a small image; remove Slurm afterward."""
    play = site(lab)
    assert play.rc == 0, play.output
    # the test hosts have no disk for a different driver
    settings = {"docker_engine_settings": {"storage-driver": "vfs"}}
    play = drive.run("docker.yml", lab.inventory, options=("--limit", "node1,node2"), timeout=400, **settings)
    assert play.rc == 0, play.output
    root_shell(lab, "node1", f"set -e\n{make_layer(TAR)}\ndocker import {TAR} {IMAGE}; rm {TAR}")
    root_shell(lab, "node1", f"docker save --output {ARCHIVE} {IMAGE} && chmod 644 {ARCHIVE}")
    read, write = lab.ssh("node1", f"cat {ARCHIVE}"), lab.ssh("node2", f"cat > {ARCHIVE}")
    with subprocess.Popen(read, stdout=subprocess.PIPE) as source:
        assert subprocess.run(write, stdin=source.stdout, check=False, timeout=300).returncode == 0
    root_shell(lab, "node2", f"docker load -i {ARCHIVE}")
    for node in NODES:
        # the role container_image does the same
        root_shell(lab, node, f"{APT} podman uidmap slirp4netns > /dev/null && loginctl enable-linger muster")
        root_shell(lab, node, f"mkdir -p /etc/containers; printf '{VFS}' > /etc/containers/storage.conf")
        user_shell(lab, node, f"podman load -q -i {ARCHIVE}")
    yield lab
    assert site(lab, slurm_state="absent").rc == 0


def containers(lab: Lab, engine: str, option: str = "--all") -> list[str]:
    """Return the containers on each host."""
    command = f"{engine} ps {option} --quiet"
    return [root_shell(lab, node, command) if engine == "docker" else user_shell(lab, node, command) for node in NODES]


def kill_supervisor(lab: Lab) -> None:
    """Kill the supervisor of node2."""
    pid = pid_of(lab, "node2", r"^\S*python3\S* .*/supervisor\.py /")
    root_shell(lab, "node2", f"kill -9 {pid}")


ENDS: dict[str, Callable[[Lab], object]] = {
    "supervisor": kill_supervisor,
    "scancel": lambda lab: as_user(lab, "node1", "scancel --user=muster"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_containers_in_a_step_end_with_the_run(engines: Lab, engine: str, end: str) -> None:
    lab, run_id = engines, f"{engine}-{end}"
    settings = {"launch_image": IMAGE, "launch_container_engine": engine, "launch_container_ulimits": []}
    play = in_queue(lab, run_id, "--stubborn", launch_container_mounts=MOUNTS, launch_stop_grace=5, **settings)
    play.wait_for("step 3 of rank 0", 600)  # podman first copies the image for the user
    assert re.search(r"I am rank 0 of 2 on \S+, \w+ at home in /home/muster/.muster/runs/", play.output), play.output
    drive.eventually(
        "containers run on both nodes", lambda: all(containers(lab, engine, "--filter=status=running")), 60
    )
    ENDS[end](lab)
    seconds = drive.eventually("no container is left", lambda: not any(containers(lab, engine)), 60)
    print(f"{engine}, {end}: {seconds:.1f} s")
    play.wait()
    drive.eventually("the job has ended", lambda: not has_job(lab, run_id), 60)
    drive.nothing_left(lab, NODES, within=60)
