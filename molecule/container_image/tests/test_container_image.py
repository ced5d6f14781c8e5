"""Real engines: an image with what a job requires goes from an archive of the first node to all, and runs jobs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import drive
from tests.lab import Lab

NODES = ["node1", "node2", "node3"]
IMAGE = "team/torch-job:1"
ARCHIVE = "/var/tmp/base.tar"
JOB_ARCHIVE = "/var/tmp/job.tar"
PODMAN = {"container_image_engine": "podman", "container_image_archive": JOB_ARCHIVE}
# overlayfs is not for who lies on one already; the other two are podman's own for root, who needs them in such a file
VFS = '[storage]\\ndriver="vfs"\\nrunroot="/run/containers/storage"\\ngraphroot="/var/lib/containers/storage"\\n'
# What a shell, Python and pip need, with a wheel to install; an image from a registry is not needed.
MAKE_IMAGE = """
set -e
python3 - << 'END'
import os, zipfile
os.makedirs("/wheels", exist_ok=True)
with zipfile.ZipFile("/wheels/probe-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("probe.py", "answer = 42")
    wheel.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: probe\\nVersion: 1.0\\n")
    wheel.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("probe-1.0.dist-info/RECORD", "")
END
tar -C / -cf /var/tmp/root.tar --no-recursion usr usr/bin usr/lib --recursion --exclude=perl --exclude=openmpi \\
  --exclude='*.a' --exclude='tmp/*' --exclude=libLLVM* bin lib64 tmp usr/lib64 usr/bin/env usr/bin/dash usr/bin/sh \\
  usr/bin/rm usr/bin/base64 usr/bin/python3 usr/bin/python3.11 lib usr/lib/python3.11 usr/lib/x86_64-linux-gnu wheels
tar -C SITE --transform 's,^,usr/lib/python3.11/,' -rf /var/tmp/root.tar pip
docker import /var/tmp/root.tar localhost/base
docker save --output /var/tmp/base.tar localhost/base
chmod 644 /var/tmp/base.tar
docker rmi localhost/base
rm -r /wheels /var/tmp/root.tar
"""


def converge(lab: Lab, *options: str, **more: Any) -> drive.Play:
    """Run the roles."""
    playbook = str(Path(__file__).with_name("image.yml"))
    given = {"container_image_name": IMAGE, "container_image_reserve_gib": 1, **more}
    return drive.run(playbook, lab.inventory, options=options, timeout=600, **given)


def sh(lab: Lab, name: str, script: str, user: str = "root") -> str:
    done = lab.exec(name, ["runuser", "-u", user, "--", "bash", "-c", script])
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def ask(lab: Lab, name: str, *words: str) -> str:
    """What an engine says: docker to root, podman to the user in a login, whose directories in /run it keeps to."""
    if words[0] == "docker":
        return sh(lab, name, shlex.join(words))
    done = subprocess.run(lab.ssh(name, shlex.join(words)), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def ids(lab: Lab, engine: str = "docker") -> set[str]:
    """The digests that the nodes have."""
    return {ask(lab, name, engine, "image", "inspect", "--format", "{{.Id}}", IMAGE).strip() for name in NODES}


def containers(lab: Lab, engine: str) -> list[int]:
    """How many containers each node has, of those that have ended too."""
    return [len(ask(lab, name, engine, "ps", "--all", "--quiet").split()) for name in NODES]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The variables of an image with requirements."""
    file = tmp_path_factory.mktemp("project") / "requirements.txt"
    file.write_text("--no-index\n--find-links /wheels\nprobe==1.0\n")
    return {"container_image_archive": ARCHIVE, "container_image_requirements": str(file)}


@pytest.fixture(scope="module")
def image(lab: Lab, given: dict[str, Any]) -> Lab:
    """The hosts, each with the image; it was checked before there was an engine."""
    play = converge(lab, "--check", "--diff")
    assert play.rc == 0, play.output
    engine = drive.run(str(Path(__file__).with_name("image.yml")), lab.inventory, container_image_name="", timeout=600)
    assert engine.rc == 0, engine.output
    site = drive.CHECKOUT / ".venv/lib/python3.11/site-packages"
    sh(lab, "node1", MAKE_IMAGE.replace("SITE", str(site)))
    play = converge(lab, **given)
    assert play.rc == 0, play.output
    return lab


@pytest.fixture(scope="module")
def by_podman(image: Lab) -> drive.Play:
    """The same image, from an archive of Docker's, with the user's podman on all hosts."""
    sh(image, "node1", f"docker save --output {JOB_ARCHIVE} {IMAGE}; chmod 644 {JOB_ARCHIVE}")
    for name in NODES:
        sh(image, name, f"mkdir -p /etc/containers; printf '{VFS}' > /etc/containers/storage.conf")
    play = converge(image, **PODMAN)
    assert play.rc == 0, play.output
    return play


def launch(lab: Lab, run_id: str, *arguments: str, **extra: Any) -> drive.Play:
    """Start a job in the image."""
    settings = {
        "nodes": ",".join(NODES),
        "nproc_per_node": 1,
        "launch_image": IMAGE,
        "launch_container_ulimits": [],
        "launch_container_mounts": [f"{path}:{path}:ro" for path in (str(drive.CHECKOUT), sys.base_prefix)],
        **extra,
    }
    return drive.launch(lab, "steps.py", *arguments, run_id=run_id, **settings)


def test_all_have_the_same_with_what_the_job_requires(image: Lab, given: dict[str, Any]) -> None:
    assert len(ids(image)) == 1
    for name in NODES:
        said = sh(image, name, f"docker run --rm --pull=never {IMAGE} python3 -c 'import probe; print(probe.answer)'")
        assert said == "42\n"
        left = sh(
            image, name, "find /var/lib/muster/container_image -name '*.tar' -o -name '*.part' -o -name request.json"
        )
        assert left == ""
    again = converge(image, **given)
    assert again.rc == 0 and again.output.count("changed=0") == len(NODES), again.output


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_a_job_runs_in_it(image: Lab, launcher: str) -> None:
    play = launch(image, f"docker-{launcher}", "--steps", "3", launch_launcher=launcher).wait()
    assert play.rc == 0, play.output
    assert containers(image, "docker") == [0, 0, 0]


def test_another_image_of_the_name_is_told_and_replaced(image: Lab, given: dict[str, Any]) -> None:
    sh(image, "node3", f"tar -C / -c --no-recursion etc | docker import - {IMAGE}")
    play = launch(image, "skewed").wait()
    said = " ".join(play.output.split())
    assert play.rc == 2 and "image-skew" in said and "node3" in said, play.output
    assert f"--tags container_image -e container_image_name={IMAGE}" in said
    sh(image, "node2", f"docker rmi --force {IMAGE}")
    play = launch(image, "missing").wait()
    assert play.rc == 2 and "image-missing" in play.output, play.output
    play = converge(image, **given)
    assert play.rc == 0 and len(ids(image)) == 1, play.output


def test_a_node_that_dies_while_it_is_handed_over_gets_it_the_next_time(image: Lab, given: dict[str, Any]) -> None:
    for name in NODES[1:]:
        sh(image, name, f"docker rmi --force {IMAGE}")
    playbook = str(Path(__file__).with_name("image.yml"))
    words = {"container_image_name": IMAGE, "container_image_reserve_gib": 1, **given}
    play = drive.start(playbook, image.inventory, **words)
    play.wait_for(r"Wait for the transfer", timeout=300)
    image.power_off("node3")
    play.wait(300)
    assert play.rc != 0 and "node3" in play.last_lines(), play.output
    image.power_on("node3")
    again = converge(image, **given)
    assert again.rc == 0 and len(ids(image)) == 1, again.output


def test_podman_without_root(image: Lab, by_podman: drive.Play) -> None:
    assert ids(image, "podman") == {one.removeprefix("sha256:") for one in ids(image)}
    for name in NODES:
        assert json.loads(sh(image, name, "podman images --format json")) == [], "the images are the user's"
    assert by_podman.output.count("; 0.0 MB came from the other nodes") == 1, by_podman.output
    again = converge(image, **PODMAN)
    assert again.rc == 0 and again.output.count("changed=0") == len(NODES), again.output


@pytest.mark.usefixtures("by_podman")
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_a_job_runs_by_podman(image: Lab, launcher: str) -> None:
    play = launch(
        image, f"podman-{launcher}", "--steps", "3", launch_launcher=launcher, launch_container_engine="podman"
    ).wait()
    assert play.rc == 0, play.output
    assert containers(image, "podman") == [0, 0, 0]


@pytest.mark.usefixtures("by_podman")
@pytest.mark.parametrize("how", ["stop", "supervisor"])
def test_containers_of_podman_end_with_the_run(image: Lab, how: str) -> None:
    words = {"launch_launcher": "torchrun", "launch_container_engine": "podman"}
    play = launch(image, f"podman-{how}", "--stubborn", **words)
    play.wait_for(r"step 3 ", timeout=150)
    assert containers(image, "podman") == [1, 1, 1]
    if how == "stop":
        assert drive.run("stop.yml", image.inventory, run_id="podman-stop").rc == 0
    else:
        image.exec("node2", ["kill", "-9", str(drive.pid_of(image, "node2", "supervisor.py"))])
    drive.eventually("no container is left", lambda: containers(image, "podman") == [0, 0, 0], 120)
    drive.nothing_left(image, NODES, within=30)
    assert play.wait().rc == 2, play.output


@pytest.mark.usefixtures("by_podman")
def test_another_image_of_podmans_is_told_and_replaced(image: Lab) -> None:
    ask(image, "node3", "sh", "-c", f"tar -C / -c --no-recursion etc | podman import - {IMAGE}")
    play = launch(image, "podman-skewed", launch_container_engine="podman").wait()
    said = " ".join(play.output.split())
    assert play.rc == 2 and "image-skew" in said and "node3" in said, play.output
    ask(image, "node2", "podman", "rmi", "--force", IMAGE)
    play = converge(image, **PODMAN)
    assert play.rc == 0 and len(ids(image, "podman")) == 1, play.output
