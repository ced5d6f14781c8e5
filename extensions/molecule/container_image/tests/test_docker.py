"""Docker on untouched hosts: site.yml gives all nodes an image with a job's requirements and a model; jobs use both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.image_hosts import IMAGE, WEIGHTS, ImageHosts
from tests.support.recap import unchanged

# Three layers: vfs, which copies the lower layers, needs twice the image's size. No job runs in this image.
MAKE_LAYERS = """
set -e
mkdir -p /var/tmp/layers && cd /var/tmp/layers
for part in 1 2 3; do head -c 20000000 /dev/urandom > part$part; done
printf 'FROM scratch\\nCOPY part1 /\\nCOPY part2 /\\nCOPY part3 /\\n' > Dockerfile
docker build --quiet --tag team/layers:1 .
rm -r /var/tmp/layers
"""
LAYERS: dict[str, Any] = {"container_image_name": "team/layers:1"}


def test_all_nodes_have_same_image_with_job_requirements(docker: ImageHosts) -> None:
    assert len(docker.ids()) == 1
    for name in docker.names:
        output = docker.root(
            name, f"docker run --rm --pull=never {IMAGE} python3 -c 'import probe; print(probe.answer)'"
        )
        assert output == "42\n"
        leftovers = docker.root(
            name, "find /var/lib/muster/container_image -name '*.tar' -o -name '*.part' -o -name request.json"
        )
        assert leftovers == ""
    rerun = docker.site()
    assert unchanged(rerun), rerun.output[-4000:]


# pdsh looks up the job user's name, which does not exist in the image ("who are you?")
@pytest.mark.parametrize(
    "launcher", ["torchrun", "deepspeed", "deepspeed-pdsh", "deepspeed-openmpi", "accelerate", "mpirun", "env"]
)
def test_job_runs_in_image_and_reads_model_offline(docker: ImageHosts, launcher: str) -> None:
    assert docker.job_reads_the_model(f"docker-{launcher}", launcher) == [f"model.safetensors': {len(WEIGHTS)}"] * 3
    assert docker.containers() == [0, 0, 0]


def test_differing_or_missing_image_is_refused_and_replaced(docker: ImageHosts) -> None:
    docker.root("node3", f"tar -C / -c --no-recursion etc | docker import - {IMAGE}")
    play = docker.launch("skewed", "steps.py").wait()
    output = " ".join(play.output.split())
    assert play.rc == 2 and "image-skew" in output and "node3" in output, play.output
    assert f"--tags container_image -e container_image_name={IMAGE}" in output
    docker.root("node2", f"docker rmi --force {IMAGE}")
    play = docker.launch("missing", "steps.py").wait()
    assert play.rc == 2 and "image-missing" in play.output, play.output
    play = docker.image()
    assert play.rc == 0 and len(docker.ids()) == 1, play.output


def test_node_lost_during_transfer_gets_image_on_next_run(docker: ImageHosts) -> None:
    for name in docker.names[1:]:
        docker.root(name, f"docker rmi --force {IMAGE}")
    play = docker.start_image()
    play.wait_for(r"Wait for the transfer", timeout=300)
    docker.lab.power_off("node3")
    play.wait(300)
    assert play.rc != 0 and "node3" in play.last_lines(), play.output
    docker.lab.power_on("node3")
    rerun = docker.image()
    assert rerun.rc == 0 and len(docker.ids()) == 1, rerun.output


@pytest.fixture
def small_disk(docker: ImageHosts) -> Iterator[ImageHosts]:
    """Yield the hosts; Docker on node2 has a disk of 150 MB for its data: a tmpfs, whose size can be changed."""
    docker.root("node1", MAKE_LAYERS)
    disk = "mount -t tmpfs -o size=150m,mode=710 tmpfs /var/lib/docker"
    docker.undo.append(lambda: docker.root("node1", "docker rmi --force team/layers:1"))
    docker.fault(
        "node2",
        f"systemctl stop docker.socket docker && {disk} && systemctl start docker",
        "systemctl stop docker.socket docker && umount /var/lib/docker && systemctl start docker",
    )
    yield docker
    docker.mend()


def test_full_engine_disk_is_reported_with_remedy(small_disk: ImageHosts) -> None:
    """The error comes before the transfer if the required size is known, and otherwise when the engine fails."""
    hosts = small_disk
    remedy = "--tags docker_data_root -e docker_data_root_path=/that/disk/docker"
    hosts.root("node2", "head -c 60000000 /dev/zero > /var/lib/docker/somebodys")
    play = hosts.image(**LAYERS)
    message = " ".join(play.output.split())
    assert play.rc == 2 and remedy in message, play.output
    pattern = (
        r"node2: team/layers:1 from node1 to docker: /var/lib/docker, where docker keeps images, has \d+\.\d MB free, "
        r"but loading team/layers:1 needs 120\.\d MB plus a reserve of 0 GiB"
    )
    assert re.search(pattern, message), message
    assert hosts.id("node3", "team/layers:1") == hosts.id("node1", "team/layers:1"), "others have it"

    hosts.root("node2", "rm /var/lib/docker/somebodys")
    play = hosts.image(**LAYERS)
    message = " ".join(play.output.split())
    assert play.rc == 2 and remedy in message and "no space left on device" in message, play.output
    pattern = r"node2: .* /var/lib/docker, where docker keeps images, has \d+\.\d MB free, but loading the 60\."
    assert re.search(pattern, message), message

    hosts.root("node2", "mount -o remount,size=1g /var/lib/docker")
    play = hosts.image(**LAYERS)
    assert play.rc == 0 and len(hosts.ids("team/layers:1")) == 1, play.output
    assert hosts.brought(play) == {"node1": 0, "node2": 0, "node3": 0}, "what had arrived was kept"
