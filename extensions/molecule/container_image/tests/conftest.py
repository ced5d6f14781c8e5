"""Fixtures: three test hosts for Docker and three for podman, each set up by one run of site.yml."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.image_hosts import ImageHosts, image_hosts


def ready(hosts: ImageHosts) -> ImageHosts:
    """Run site.yml in check mode on the untouched hosts, then apply it; return the hosts."""
    check = hosts.site("--check", "--diff")
    assert check.rc == 0, check.output[-6000:]
    play = hosts.site()
    assert play.rc == 0, play.output[-6000:]
    return hosts


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageHosts]:
    """Yield hosts with Docker, the image and the model."""
    with image_hosts("image", "docker", tmp_path_factory.mktemp("docker") / "requirements.txt") as hosts:
        yield ready(hosts)


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageHosts]:
    """Yield hosts with rootless podman, the image and the model."""
    with image_hosts("podman", "podman", tmp_path_factory.mktemp("podman") / "requirements.txt") as hosts:
        yield ready(hosts)


@pytest.fixture(scope="session")
def dockers_archive(docker: ImageHosts, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return an archive written by Docker, on this machine, and the digest of its image in Docker."""
    path = tmp_path_factory.mktemp("archive") / "job.tar"
    docker.root("node1", f"docker tag {docker.id('node1')} team/of-docker:1")
    docker.root("node1", "docker save --output /var/tmp/job.tar team/of-docker:1 && chmod 644 /var/tmp/job.tar")
    with path.open("wb") as stream:
        subprocess.run(docker.lab.ssh("node1", "cat /var/tmp/job.tar"), stdout=stream, check=True, timeout=300)
    docker.root("node1", "docker rmi team/of-docker:1; rm /var/tmp/job.tar")
    return path, docker.id("node1")
