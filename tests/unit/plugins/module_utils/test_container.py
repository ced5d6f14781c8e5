"""A node's command in a container: its words, and that it ends with the run (by a stand-in for the engine)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._container import SHELL, container_words, mounts
from ansible_collections.muster.training.plugins.module_utils._plan import node_plan
from ansible_collections.muster.training.plugins.module_utils._rank_table import Host, build_rank_table
from tests.unit.healthy import Facts, spoilt
from tests.unit.supervised import Run, end_by_force, eventually, make_job, make_run

TABLE = build_rank_table([Host("a", "10.0.0.9", 2), Host("b", "10.0.0.10", 2)])
FACTS: dict[str, Any] = {
    "interpreter": "/usr/bin/python3",
    "interface": "ens5",
    "runs_directory": "/home/me/.muster/runs",
    "working_directory": {"path": "/srv/project"},
    "script": {"path": "/srv/project/train.py"},
    "user": "me",
    "uid": 1000,
    "gid": 1001,
    "gpu_count": 0,
}


def words(facts: dict[str, Any] | None = None, **given: Any) -> list[str]:
    job = make_job(run_id="first", image="torch:1", interpreter="python", **given)
    return container_words(job, TABLE.nodes[1], {**FACTS, **(facts or {})}, "/run/dir", "/tmp/muster-x", ["B", "A"])


def test_docker_run() -> None:
    assert words(container_ulimits=("memlock=-1",), container_mounts=("/data:/data:ro",)) == [
        *("docker", "run", "--rm", "--name=muster-first-node1", "--network=host", "--ipc=host", "--ulimit=memlock=-1"),
        *("--user=1000:1001", "--volume=/run/dir:/run/dir", "--volume=/tmp/muster-x:/tmp/muster-x"),
        *("--volume=/srv/project:/srv/project", "--volume=/data:/data:ro", "--workdir=/srv/project", "--env=USER=me"),
        *("--env=HOME=/run/dir", "--env=A", "--env=B", "--env=MUSTER_RUN_DIRECTORY", "--env=TMPDIR"),
        *("--entrypoint=/bin/sh", "torch:1", "-c", SHELL, "/run/dir/bin"),
    ]


def test_gpus_are_asked_for_only_where_there_are_some() -> None:
    assert "--gpus=all" in words({"gpu_count": 8})
    assert not [word for word in words() if "gpu" in word]
    assert "--device=nvidia.com/gpu=all" in words({"gpu_count": 1}, container_engine="podman")


def test_podmans_own_root_is_the_user() -> None:
    assert "--userns=keep-id" in words(container_engine="podman")
    assert "--user=0:0" in words({"uid": 0, "gid": 0}, container_engine="podman")


def test_shared_memory_of_its_own() -> None:
    assert "--shm-size=16g" in words(container_shm_size="16g") and "--ipc=host" not in words(container_shm_size="16g")


@pytest.mark.parametrize(
    ("work", "script", "more"),
    [
        ("/srv/project", "/srv/project/a/train.py", []),
        ("/srv/project", "/srv/projects/train.py", ["/srv/projects:/srv/projects:ro"]),
        ("/", "/opt/train.py", []),
    ],
)
def test_what_the_container_sees(work: str, script: str, more: list[str]) -> None:
    job = make_job(image="x")
    found = mounts(job, {"working_directory": {"path": work}, "script": {"path": script}}, "/r", "/t")
    assert found == ["/r:/r", "/t:/t", *([f"{work}:{work}"] if work != "/" else []), *more]


@pytest.mark.parametrize("launcher", ["torchrun", "env", "deepspeed", "mpirun", "accelerate"])
def test_every_launcher_runs_in_the_image(launcher: str) -> None:
    job = make_job(
        run_id="first", launcher=launcher, image="torch:1", interpreter="/opt/conda/bin/python", variables=("TOKEN",)
    )
    plan = node_plan(job, TABLE, TABLE.nodes[0], FACTS)
    assert plan["wrap"][:2] == ["docker", "run"] and plan["remove"] == ["docker", "rm", "--force", "muster-first-node0"]
    assert "--env=TOKEN" in plan["wrap"] and "--env=NCCL_SOCKET_IFNAME" in plan["wrap"]
    assert launcher == "mpirun" or plan["command"][0] == "/opt/conda/bin/python"
    assert plan["path_prefix"] == "/usr/bin"


def test_software_of_the_node_does_not_matter_in_an_image() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for name, one in facts.items():
            one["interpreter"] = ""
            one["software"]["packages"] = {}
            one["programs"] = {} if name == "node2" else {"docker": "/usr/bin/docker"}

    assert spoilt(spoil, 2, image="torch:1") == [("error", "program-missing", ("node2",))]
    assert spoilt(spoil, 2, image="torch:1", launcher="deepspeed") == [("error", "program-missing", ("node2",))]


def test_what_is_the_nodes_own_matters_in_an_image_too() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for one in facts.values():
            one["programs"] = {"docker": "/usr/bin/docker"}
            del one["software"]  # the interpreter is the image's
        facts["node2"]["kernel"] = "6.8.0-51-generic"
        facts["node3"]["script"]["sha256"] = "bb" * 32
        for device in facts["node4"]["gpus"]["devices"]:
            device["name"] = "A100-SXM4-80GB"

    assert spoilt(spoil, 4, 1, image="torch:1") == [
        ("error", "skew-script", ("node3",)),
        ("warning", "skew-gpu", ("node4",)),
        ("warning", "skew-kernel", ("node2",)),
    ]


# --- It ends with the run: a stand-in for the engine, whose daemon starts the container, so that it is no child of ours

ENGINE = """#!/bin/sh
cd "$(dirname "$0")"
if [ "$1" = rm ]; then echo "$@" >> removed; kill -9 $(cat daemon.pid); exit; fi
echo $$ > client.pid
echo run > daemon
while kill -0 $(cat daemon.pid); do sleep 0.1; done
exit 137
"""
DAEMON = "read -r _ < daemon; touch started; exec sleep 631"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of one node in a container."""
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    run = make_run(tmp_path, [["unused"]])
    run.plans[0].update(wrap=[str(engine), "run"], remove=[str(engine), "rm", "--force", "it"])
    return run


@pytest.fixture
def container(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """What becomes the run's container as soon as the engine asks for it."""
    os.mkfifo(run.directory / "daemon")
    with subprocess.Popen(["/bin/sh", "-c", DAEMON], cwd=run.directory) as container:
        (run.directory / "daemon.pid").write_text(str(container.pid))
        try:
            yield container
            end_by_force(run)
        finally:
            container.kill()


@pytest.mark.parametrize("how", ["stop", "engine", "supervisor"])
def test_a_container_ends_with_the_run(run: Run, container: subprocess.Popen[bytes], how: str) -> None:
    run.start()
    eventually((run.directory / "started").exists)
    run.wait_for("running")
    assert container.poll() is None
    if how == "stop":
        run.stop()
    elif how == "engine":
        os.kill(int((run.directory / "client.pid").read_text()), 9)
    else:
        os.kill(run.supervisor(0), 9)
    eventually(lambda: container.poll() is not None)
    run.wait_until_gone()
    assert set((run.directory / "removed").read_text().splitlines()) == {"rm --force it"}
