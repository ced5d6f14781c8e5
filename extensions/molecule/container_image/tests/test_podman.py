"""Rootless podman on untouched hosts: the same as with Docker, and no container outlives its run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import drive
from tests.support.image_hosts import IMAGE, WEIGHTS, ImageHosts
from tests.support.recap import unchanged


def test_rootless_podman_has_image_and_second_run_changes_nothing(podman: ImageHosts) -> None:
    assert len(podman.ids()) == 1
    for name in podman.names:
        assert json.loads(podman.root(name, "podman images --format json")) == [], "the images are the user's"
    rerun = podman.site()
    assert unchanged(rerun), rerun.output[-4000:]


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_job_runs_in_podman_and_reads_model_offline(podman: ImageHosts, launcher: str) -> None:
    assert podman.job_reads_the_model(f"podman-{launcher}", launcher) == [f"model.safetensors': {len(WEIGHTS)}"] * 3
    assert podman.containers() == [0, 0, 0]


@pytest.mark.parametrize("how", ["stop", "supervisor"])
def test_podman_containers_end_with_the_run(podman: ImageHosts, how: str) -> None:
    lab = podman.lab
    play = podman.launch(f"podman-{how}", "steps.py", "--stubborn")
    play.wait_for(r"step 3 ", timeout=150)
    assert podman.containers() == [1, 1, 1]
    if how == "stop":
        assert drive.run("stop.yml", lab.inventory, run_id="podman-stop").rc == 0
    else:
        lab.exec("node2", ["kill", "-9", str(drive.pid_of(lab, "node2", "supervisor.py"))])
    drive.eventually("no container is left", lambda: podman.containers() == [0, 0, 0], 120)
    drive.nothing_left(lab, podman.names, within=30)
    assert play.wait().rc == 2, play.output


def test_unenforceable_memory_limit_is_reported(podman: ImageHosts) -> None:
    """Without dbus-user-session podman accepts the limit and does not enforce it."""
    options = ["--memory=64m"]
    arguments = ["run", "--rm", "--pull=never", "--network=host", *options, IMAGE]
    message = podman.run_engine("node1", *arguments, "python3", "-c", "print(len(' ' * 10**8))")
    assert message == "100000000\n", "it has no limit"
    play = podman.launch("limited", "steps.py", "--steps", "1", launch_container_options=options).wait()
    output = " ".join(play.output.split())
    assert play.rc == 0 and "image-memory-limit" in output and "apt-get install dbus-user-session" in output, (
        play.output
    )
    job = {**podman.variables["job"], "container_options": options}
    play = drive.run("preflight.yml", podman.lab.inventory, job=job, preflight_ssh=False)
    assert "image-memory-limit" in play.output, play.output


def test_differing_podman_image_is_refused_and_replaced(podman: ImageHosts) -> None:
    etc = "tar -C / -c --no-recursion etc 2>/dev/null"
    podman.root("node3", f"{etc} > /var/tmp/etc.tar && chmod 644 /var/tmp/etc.tar")
    podman.run_engine("node3", "import", "/var/tmp/etc.tar", IMAGE)
    play = podman.launch("podman-skewed", "steps.py").wait()
    output = " ".join(play.output.split())
    assert play.rc == 2 and "image-skew" in output and "node3" in output, play.output
    podman.run_engine("node2", "rmi", "--force", IMAGE)
    play = podman.image()
    assert play.rc == 0 and len(podman.ids()) == 1, play.output


def test_docker_archive_keeps_its_digest_in_podman(podman: ImageHosts, dockers_archive: tuple[Path, str]) -> None:
    """The archive is on this machine, and is transferred to each node at most once."""
    path, digest = dockers_archive
    play = podman.image(container_image_name="team/of-docker:1", container_image_archive=str(path))
    assert play.rc == 0, play.output
    assert podman.ids("team/of-docker:1") == {digest}
    assert sorted(podman.brought(play)) == podman.names and podman.brought(play)["node1"] == 0
