"""A real engine: settings, moving its data with the images, and jobs in containers that end with their run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive
from tests.support.image_layer import MOUNTS, make_layer
from tests.support.rented import Project
from tests.unit.pages import CONTAINERS, section

NODES = ["node1", "node2"]
IMAGE = "localhost/small"
SETTINGS = {"storage-driver": "vfs"}  # the test hosts have no disk that supports a different one
MAKE_IMAGE = f"""
set -e
{make_layer("/var/tmp/root.tar")}
docker import /var/tmp/root.tar {IMAGE}
rm /var/tmp/root.tar
"""
# A fake of the job in a guide: it checks that the copied files exist and that the ranks on all nodes can communicate.
TRAIN = """
import argparse, os
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: imported later it keeps it alive

parser = argparse.ArgumentParser()
parser.add_argument("--data_path")
parser.add_argument("--delta_ckpt_path")
parser.add_argument("--save_path")
options, _others = parser.parse_known_args()
text = open(options.data_path).read() + open(options.delta_ckpt_path).read()
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
os.makedirs(options.save_path, exist_ok=True)
with open(f"{options.save_path}/rank{dist.get_rank()}", "w") as file:
    file.write(f"{text} {total.item():.0f} {os.environ['MASTER_PORT']}")
dist.destroy_process_group()
"""
EXCLUDED_ARGUMENTS = {"firewall", "ssh_mesh_port=2222"}
"""Arguments of commands that have their own scenarios and would interfere with the other tests here."""


@pytest.fixture(scope="module")
def engine(lab: Lab) -> Lab:
    """Return the hosts with an engine, after check mode, installation, and a second run without changes."""
    for options in (("--check",), (), ()):
        play = drive.run("docker.yml", lab.inventory, options=options, timeout=400, docker_engine_settings=SETTINGS)
        assert play.rc == 0, play.output
    assert len(re.findall(r"node\d .*changed=0", play.output)) == 2, play.output
    return lab


@pytest.fixture(scope="module")
def image(engine: Lab) -> Lab:
    """Return the hosts with one small image, built on the first and copied to the second."""
    lab = engine
    for name in NODES:
        lab.exec(name, ["rm", "-rf", "/home/muster/.muster"])
    completed = lab.exec("node1", ["bash", "-c", MAKE_IMAGE])
    assert completed.returncode == 0, completed.stdout + completed.stderr
    save, load = lab.ssh("node1", f"docker save {IMAGE}"), lab.ssh("node2", "docker load")
    with subprocess.Popen(save, stdout=subprocess.PIPE) as saved:
        loaded = subprocess.run(load, stdin=saved.stdout, capture_output=True, text=True, timeout=300, check=False)
    assert (saved.returncode, loaded.returncode) == (0, 0), loaded.stdout + loaded.stderr
    return lab


def launch(lab: Lab, run_id: str, *args: str, job: str = "steps.py", **extra: Any) -> drive.Play:
    settings = {
        "nodes": ",".join(NODES),
        "nproc_per_node": 1,
        "launch_image": IMAGE,
        "launch_container_ulimits": [],
        "launch_container_mounts": MOUNTS,
        "launch_launcher": "deepspeed",
        **extra,
    }
    return drive.launch(lab, job, *args, run_id=run_id, **settings)


def images(lab: Lab) -> str:
    """Return all images of node1, without their ages."""
    arguments = ["docker", "images", "--all", "--no-trunc", "--format", "{{.Repository}} {{.Tag}} {{.ID}} {{.Size}}"]
    return lab.exec("node1", arguments).stdout


def describe(lab: Lab) -> str:
    """Return the containers of both hosts, with their commands."""
    return "".join(lab.exec(name, ["docker", "ps", "--all", "--no-trunc"]).stdout for name in NODES)


def containers(lab: Lab) -> str:
    """Return all containers on both hosts; "" if there are none."""
    result = ""
    for name in NODES:
        completed = lab.exec(name, ["docker", "ps", "--all", "--quiet"])
        assert completed.returncode == 0, f"{name}: {completed.stderr}"
        result += completed.stdout
    return result


def test_engine_uses_the_configured_storage_driver(engine: Lab) -> None:
    for name in NODES:
        assert engine.exec(name, ["docker", "info", "--format", "{{.Driver}}"]).stdout.strip() == "vfs"


def test_job_runs_in_a_container_with_its_environment(image: Lab) -> None:
    value = "a b\n$HOME 'q' \"d\""
    play = launch(
        image, "in-image", "--steps", "3", "--show", "VALUE", "NCCL_SOCKET_IFNAME", launch_environment={"VALUE": value}
    ).wait()
    assert play.rc == 0, play.output
    assert drive.run("logs.yml", image.inventory, run_id="in-image", fetch=True).rc == 0
    folder = image.inventory.parent / "runs/in-image/logs"
    for rank, name in enumerate(NODES):
        text = (folder / f"node{rank}/ranks/0/stdout.log").read_text()
        assert f"I am rank {rank} of 2 local 0 on {name}\n" in text
        assert f"VALUE={value!r}\n" in text and "NCCL_SOCKET_IFNAME='=eth0'\n" in text
        assert image.exec(name, ["find", "/run/muster", "-mindepth", "2"]).stdout == ""
    assert containers(image) == ""


# tests/unit/plugins/plugin_utils/plan/test_container_command.py tests the other endings, with a fake engine
@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.thorough) for how in ("raises", "stop")), "supervisor"]
)
def test_containers_end_with_the_run(image: Lab, how: str) -> None:
    if how == "raises":
        play = launch(image, "image-raises", "--raise-on", "1")
    else:  # the node has no torch, which DeepSpeed's launcher imports on each node
        play = launch(image, f"image-{how}", "--stubborn", job="ticks.py", launch_launcher="env")
    play.wait_for(r"step 3 ", timeout=150)
    if how == "stop":
        assert drive.run("stop.yml", image.inventory, run_id="image-stop").rc == 0
    elif how == "supervisor":
        # rank 0 prints while the other node's engine may still be creating its container
        running = ["docker", "ps", "--quiet", "--filter", "status=running"]
        drive.eventually("node2 runs a container", lambda: image.exec("node2", running).stdout != "", 150)
        image.exec("node2", ["kill", "-9", str(drive.pid_of(image, "node2", "supervisor.py"))])
    # the engine removes it, which takes a long time on a busy machine
    drive.eventually("no container is left", lambda: containers(image) == "", 180, lambda: describe(image))
    drive.nothing_left(image, NODES, within=30)
    play.wait()
    assert play.rc == 2, play.output
    if how == "raises":
        assert "node2" in play.last_lines() and "ValueError: boom at step 5" in play.last_lines()


STOP_WHILE_CREATING = """
until [ "$(ls "$0/vfs/dir" | wc -l)" -gt "$1" ]; do sleep 0.005; done
kill -STOP $(pidof dockerd)
ls "$0/containers"
"""
"""Stops the engine as soon as it starts to copy the files of another container; prints the containers created."""


def test_container_being_created_ends_when_the_supervisor_is_killed(image: Lab) -> None:
    """The engine finishes the creation although the client that requested it was killed."""
    directory = image.exec("node2", ["docker", "info", "--format", "{{.DockerRootDir}}"]).stdout.strip()
    number = len(image.exec("node2", ["ls", f"{directory}/vfs/dir"]).stdout.split())
    play = launch(image, "image-creating", job="ticks.py", launch_launcher="env", launch_import_test=False)
    try:
        stopped = image.exec("node2", ["bash", "-c", STOP_WHILE_CREATING, directory, str(number)], timeout=150)
        assert (stopped.returncode, stopped.stdout) == (0, ""), stopped.stdout + stopped.stderr
        image.exec("node2", ["kill", "-9", str(drive.pid_of(image, "node2", "supervisor.py"))])
        removal, client = (["pgrep", "-f", f"^docker {command} --"] for command in ("rm", "run"))
        drive.eventually("the container is to be removed", lambda: image.exec("node2", removal).returncode == 0, 60)
        assert image.exec("node2", client).returncode == 1, "the client was killed with the supervisor"
    finally:
        image.exec("node2", ["bash", "-c", "kill -CONT $(pidof dockerd)"])
    drive.eventually("no container is left", lambda: containers(image) == "", 180, lambda: describe(image))
    drive.nothing_left(image, NODES, within=150)
    play.wait()
    assert play.rc == 2, play.output
    assert containers(image) == "", "the engine has not created it later"


def test_stacks_of_a_hang_in_containers_are_reported(image: Lab) -> None:
    """The hook works in an image's own Python, whose processes have other pids inside the container."""
    play = launch(image, "image-hang", "loop", "3000", job="hangs.py", launch_launcher="env")
    play.wait_for(r"step 3", timeout=300)
    pattern = r"rank 0 on node1 waits in all_reduce \(hangs\.py:\d+\); rank 1 on node2 is in load \(hangs\.py:\d+\)"

    def shows_hang() -> bool:
        stacks = drive.run("stacks.yml", image.inventory, run_id="image-hang")
        assert stacks.rc == 0, stacks.output
        return bool(re.search(pattern, " ".join(stacks.output.split())))

    drive.eventually("the stacks show the hang", shows_hang, 120)
    samples = "/home/muster/.muster/runs/image-hang/node0/samples.jsonl"

    def cores(node: str) -> float | None:
        """Return the newest measurement of the cores that the job uses on a node."""
        lines = [json.loads(line) for line in image.exec("node1", ["cat", samples]).stdout.splitlines()]
        return next((line["job_cores"] for line in reversed(lines) if line["node"] == node), None)

    # another process in node2's container, without the run's variables, as a data loader is
    spin = ["env", "-i", "/bin/sh", "-c", "while :; do :; done"]
    spinning = image.exec("node2", ["docker", "exec", "--detach", "muster-image-hang-node1", *spin])
    assert spinning.returncode == 0, spinning.stderr
    drive.eventually("its CPU time is that of the job", lambda: (cores("node2") or 0) > 0.1, 120, pause=1)
    assert cores("node1") is not None
    assert drive.run("stop.yml", image.inventory, run_id="image-hang").rc == 0
    play.wait()
    drive.nothing_left(image, NODES, within=30)


def test_unknown_docker_settings_are_rolled_back(engine: Lab, tmp_path: Path) -> None:
    lab = engine
    settings = {**SETTINGS, "nonsense": 1}
    play = role(lab, tmp_path, "docker_engine", docker_engine_enabled=True, docker_engine_settings=settings)
    assert play.rc == 2 and "is running with the previous ones" in " ".join(play.output.split()), play.output
    assert json.loads(lab.exec("node1", ["cat", "/etc/docker/daemon.json"]).stdout) == SETTINGS
    assert lab.exec("node1", ["docker", "info"]).returncode == 0


def test_engine_from_another_package_is_kept(engine: Lab, tmp_path: Path) -> None:
    """As with docker-ce: here, docker.io is installed, which is not among the requested packages."""
    play = role(engine, tmp_path, "docker_engine", docker_engine_enabled=True, docker_engine_packages=["other-engine"])
    output = " ".join(play.output.split())
    assert play.rc == 0 and "Docker is already installed from docker.io and is kept: other-engine would" in output, (
        output
    )


@pytest.mark.thorough  # tests/unit/roles/test_root_paths.py
def test_image_directory_owned_by_a_user_is_refused(engine: Lab, tmp_path: Path) -> None:
    directory = "/home/muster/images"
    play = role(
        engine, tmp_path, "container_image", container_image_name="team/a:1", container_image_directory=directory
    )
    output = " ".join(play.output.split())
    assert (
        play.rc == 2
        and f"/home/muster does not belong to root, and root would trust the contents of {directory}" in output
    )
    assert engine.exec("node1", ["test", "-e", directory]).returncode != 0


@pytest.mark.thorough  # tests/unit/roles/test_docker_engine_key.py
def test_package_key_not_from_nvidia_is_refused(engine: Lab, tmp_path: Path) -> None:
    lab = engine
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    settings = {"docker_engine_enabled": True, "docker_engine_nvidia": True, "docker_engine_nvidia_key": key}
    play = role(lab, tmp_path, "docker_engine", **settings)
    output = " ".join(play.output.split())
    assert play.rc == 2 and f"node1: the key of NVIDIA's package source, {key}, was rejected" in output, play.output
    assert "Accepted fingerprints: C95B321B61E88C1809C4F759DDCAE044F796ECB0" in output
    listing = lab.exec("node1", ["sh", "-c", "ls /etc/apt/sources.list.d /etc/apt/keyrings | grep -i nvidia"])
    assert listing.stdout == ""


def role(lab: Lab, tmp_path: Path, name: str, **variables: Any) -> drive.Play:
    """Run a role on node1."""
    playbook = tmp_path / "play.yml"
    use = {"role": f"muster.training.{name}", "vars": variables}
    playbook.write_text(json.dumps([{"hosts": "node1", "gather_facts": False, "roles": [use]}]))
    return drive.run(str(playbook), lab.inventory)


@pytest.mark.thorough  # tests/unit/plugins/module_utils/containers/test_data_root.py tests the rest, with a fake engine
def test_data_root_moves_and_is_restored_when_the_move_fails(image: Lab, tmp_path: Path) -> None:
    for arguments in (
        ["volume", "create", "kept"],
        ["create", "--name", "stopped", "--volume", "kept:/kept", IMAGE, "sh"],
    ):
        completed = image.exec("node1", ["docker", *arguments])
        assert completed.returncode == 0, completed.stderr
    before = images(image)
    assert IMAGE in before

    def root() -> str:
        return image.exec("node1", ["docker", "info", "--format", "{{.DockerRootDir}}"]).stdout.strip()

    former = root()
    full = role(image, tmp_path, "docker_data_root", docker_data_root_path="/srv/a", docker_data_root_spare_gib=10**6)
    assert full.rc == 2 and "the disk that holds /srv/a has" in " ".join(full.output.split()), full.output
    # a disk that fills up halfway through the copy
    image.exec("node1", ["mkdir", "-p", "/srv/small"])
    image.exec("node1", ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", "/srv/small"])
    image.exec("node1", ["sh", "-c", "printf '#!/bin/sh\\necho 1 x' > /usr/local/bin/du; chmod +x /usr/local/bin/du"])
    failed = role(
        image, tmp_path, "docker_data_root", docker_data_root_path="/srv/small/d", docker_data_root_spare_gib=0
    )
    image.exec("node1", ["rm", "/usr/local/bin/du"])
    assert failed.rc == 2 and "is running with its previous data again" in " ".join(failed.output.split()), (
        failed.output
    )
    assert root() == former and images(image) == before
    location: dict[str, Any] = {"docker_data_root_path": "/srv/docker", "docker_data_root_spare_gib": 0}
    moved = drive.run("docker.yml", image.inventory, options=("--limit", "node1"), **location)
    assert moved.rc == 0, moved.output
    assert root() == "/srv/docker" and images(image) == before
    assert image.exec("node1", ["docker", "start", "--attach", "stopped"]).returncode == 0, (
        "it came along with its volume"
    )
    image.exec("node1", ["docker", "rm", "--volumes", "stopped"])
    assert image.exec("node1", ["test", "-d", former]).returncode == 0
    cleanup = role(
        image, tmp_path, "docker_data_root", docker_data_root_path="/srv/docker", docker_data_root_delete_old=True
    )
    assert cleanup.rc == 0 and image.exec("node1", ["test", "-d", former]).returncode != 0
    image.exec("node1", ["umount", "/srv/small"])


@pytest.fixture
def guide(image: Lab, tmp_path: Path) -> Project:
    """Return a project with the files of the page on containers, and the files that its readers already have."""
    completed = image.exec("node1", ["docker", "tag", IMAGE, "huggingface/transformers-pytorch-gpu"])  # as if pulled
    assert completed.returncode == 0, completed.stderr
    project = Project(tmp_path, "static", {})
    inventory = yaml.safe_load(image.inventory.read_text())
    inventory["training"]["vars"].pop("launch_script", None)  # the job file contains it
    hosts = yaml.safe_dump(inventory)
    settings = {
        "docker_engine_settings": SETTINGS,
        "container_image_reserve_gib": 1,
        "launch_container_ulimits": [],
        "docker_data_root_spare_gib": 1,
        "base_packages_sysctl": {},  # a test host shares its kernel with this machine
    }
    project.set_up(image, settings, lambda _written, _user: hosts)
    for name, text in section(*CONTAINERS)[0].items():
        with (tmp_path / name).open("a") as file:
            file.write(text)
    job = yaml.safe_load((tmp_path / "job.yml").read_text())
    # torch is mounted rather than included in the image; one rank per node, with two cores
    job["job"]["container_mounts"] += MOUNTS
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    for name, text in {
        "AnomalyGPT/code/train_mvtec.py": TRAIN,
        "AnomalyGPT/requirements.txt": "--no-index\n--find-links /wheels\nprobe==1.0\n",
        "pretrained_ckpt/pandagpt_ckpt/7b/pytorch_model.pt": "weights",
        "data/pandagpt4_visual_instruction_data.json": "data and ",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return project


@pytest.mark.thorough  # tests/unit/test_docs_run.py checks that each command is accepted
def test_container_guide_works_step_by_step(image: Lab, guide: Project) -> None:
    """Follow the page exactly, from nodes without the job's image to the job's checkpoint."""
    outputs = {}
    for command in section(*CONTAINERS)[1]:
        arguments = shlex.split(command.replace("gpu1", "node1"))
        if EXCLUDED_ARGUMENTS & set(arguments):
            continue
        argv = (
            ["script", "-qec", shlex.join(arguments), os.devnull] if arguments[1] == "shell" else arguments
        )  # runs in a terminal
        completed = subprocess.run(
            argv,
            input="python3 -c 'import probe; print(probe.answer * 100)'; exit\n",
            cwd=guide.directory,
            env=guide.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        assert completed.returncode == 0, f"{command}:\n{completed.stdout}"
        outputs[arguments[1]] = completed.stdout
    assert "4200" in outputs["shell"], outputs["shell"]
    for rank, name in enumerate(NODES):
        find = ["find", "/home/muster", "-path", "*/ckpt/train_mvtec/rank*", "-exec", "cat", "{}", ";"]
        assert image.exec(name, find).stdout == "data and weights 2 28400", f"rank {rank} on {name}"
        info = ["docker", "info", "--format", "{{.DockerRootDir}}"]
        assert image.exec(name, info).stdout.strip() == "/mnt/new-disk/docker"
        assert image.exec(name, ["ls", "/mnt/new-disk"]).stdout.strip() == "docker"
        assert image.exec(name, ["test", "-e", "/var/lib/docker"]).returncode != 0, "it was told to delete it"
