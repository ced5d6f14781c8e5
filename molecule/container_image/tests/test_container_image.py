"""Real engines: an image with what a job requires goes from an archive of the first node to all, and runs a job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import drive
from tests.lab import Lab

NODES = ["node1", "node2", "node3"]
IMAGE = "team/torch-job:1"
ARCHIVE = "/var/tmp/base.tar"
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


def ids(lab: Lab, engine: str = "docker", user: str = "root") -> set[str]:
    """The digests that the nodes have."""
    look = f"cd /; {engine} image inspect --format '{{{{.Id}}}}' {IMAGE}"
    return {sh(lab, name, look, user).strip() for name in NODES}


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


def launch(lab: Lab, run_id: str, **extra: Any) -> drive.Play:
    settings = {
        "nodes": ",".join(NODES),
        "nproc_per_node": 1,
        "launch_image": IMAGE,
        "launch_container_ulimits": [],
        "launch_container_mounts": [f"{path}:{path}:ro" for path in (str(drive.CHECKOUT), sys.base_prefix)],
        **extra,
    }
    return drive.launch(lab, "steps.py", "--steps", "3", run_id=run_id, **settings).wait()


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


def test_a_job_runs_in_it(image: Lab) -> None:
    play = launch(image, "in-image")
    assert play.rc == 0, play.output


def test_another_image_of_the_name_is_told_and_replaced(image: Lab, given: dict[str, Any]) -> None:
    sh(image, "node3", f"tar -C / -c --no-recursion etc | docker import - {IMAGE}")
    play = launch(image, "skewed")
    said = " ".join(play.output.split())
    assert play.rc == 2 and "image-skew" in said and "node3" in said, play.output
    assert f"--tags container_image -e container_image_name={IMAGE}" in said
    sh(image, "node2", f"docker rmi --force {IMAGE}")
    play = launch(image, "missing")
    assert play.rc == 2 and "image-missing" in play.output, play.output
    play = converge(image, **given)
    assert play.rc == 0 and len(ids(image)) == 1, play.output


def test_a_node_that_dies_while_it_is_handed_over_gets_it_the_next_time(image: Lab, given: dict[str, Any]) -> None:
    for name in NODES[1:]:
        sh(image, name, f"docker rmi --force {IMAGE}")
    playbook = str(Path(__file__).with_name("image.yml"))
    words = {"container_image_name": IMAGE, "container_image_reserve_gib": 1, **given}
    play = drive.start(playbook, image.inventory, **words)
    play.wait_for(r"Follow it to its end", timeout=300)
    image.power_off("node3")
    play.wait(300)
    assert play.rc != 0 and "node3" in play.last_lines(), play.output
    image.power_on("node3")
    again = converge(image, **given)
    assert again.rc == 0 and len(ids(image)) == 1, again.output


def test_podman_without_root(image: Lab, given: dict[str, Any]) -> None:
    archive = "/var/tmp/job.tar"
    sh(image, "node1", f"docker save --output {archive} {IMAGE}; chmod 644 {archive}")
    words = {"container_image_engine": "podman", "container_image_archive": archive}
    for name in NODES:
        sh(image, name, f"mkdir -p /etc/containers; printf '{VFS}' > /etc/containers/storage.conf")
    play = converge(image, **words)
    assert play.rc == 0, play.output
    assert len(ids(image, "podman", "muster")) == 1
    for name in NODES:
        assert json.loads(sh(image, name, "podman images --format json")) == [], "the images are the user's"
    play = launch(image, "by-podman", launch_container_engine="podman")
    assert play.rc == 0, play.output
