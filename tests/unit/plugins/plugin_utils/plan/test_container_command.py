"""A node's command in a container: its command line, and the checks before a launch."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import image
from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.images import check_images
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import (
    SHELL_SCRIPT,
    container_argv,
    container_volumes,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan
from tests.unit.healthy import Facts, address, cluster, spoilt
from tests.unit.supervised import make_job

TABLE = build_rank_table([HostSpec("a", "10.0.0.9", 2), HostSpec("b", "10.0.0.10", 2)])
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


def node_argv(facts: dict[str, Any] | None = None, **options: Any) -> list[str]:
    job = make_job(run_id="first", image="torch:1", interpreter="python", **options)
    return container_argv(job, TABLE.nodes[1], {**FACTS, **(facts or {})}, "/run/dir", "/tmp/muster-x", ["B", "A"])


def test_docker_run_command_line() -> None:
    assert node_argv(container_ulimits=("memlock=-1",), container_mounts=("/data:/data:ro",)) == [
        *("docker", "run", "--rm", "--pull=never", "--name=muster-first-node1", "--network=host", "--ipc=host"),
        "--ulimit=memlock=-1",
        *(
            "--user=1000:1001",
            "--volume=/etc/passwd:/etc/passwd:ro",
            "--volume=/run/dir:/run/dir",
            "--volume=/tmp/muster-x:/tmp/muster-x",
        ),
        *("--volume=/srv/project:/srv/project", "--volume=/data:/data:ro", "--workdir=/srv/project", "--env=USER=me"),
        *("--env=HOME=/run/dir", "--env=A", "--env=B", "--env=MUSTER_RUN_DIRECTORY", "--env=TMPDIR"),
        *("--entrypoint=/bin/sh", "torch:1", "-c", SHELL_SCRIPT, "/run/dir/bin"),
    ]


def test_gpus_are_requested_only_on_nodes_with_gpus() -> None:
    assert "--gpus=all" in node_argv({"gpu_count": 8})
    assert not [word for word in node_argv() if "gpu" in word]
    assert "--device=nvidia.com/gpu=all" in node_argv({"gpu_count": 1}, container_engine="podman")


def test_podman_keeps_the_user_id() -> None:
    assert "--userns=keep-id" in node_argv(container_engine="podman")
    assert "--user=0:0" in node_argv({"uid": 0, "gid": 0}, container_engine="podman")


def test_user_has_a_name_in_the_container() -> None:
    """pdsh, ssh and pwd fail for a user without a name; the job cannot change the file."""
    mount = "--volume=/etc/passwd:/etc/passwd:ro"
    assert mount in node_argv()
    assert mount not in node_argv({"uid": 0, "gid": 0, "user": "root"})
    assert mount not in node_argv(container_engine="podman"), "podman adds the user by itself"
    assert mount not in node_argv(container_mounts=("/srv/passwd:/etc/passwd:ro",))
    assert mount not in node_argv(container_options=("--volume=/srv/passwd:/etc/passwd",))


def test_shm_size_replaces_host_ipc() -> None:
    assert "--shm-size=16g" in node_argv(container_shm_size="16g") and "--ipc=host" not in node_argv(
        container_shm_size="16g"
    )


@pytest.mark.parametrize(
    ("work", "script", "more"),
    [
        ("/srv/project", "/srv/project/a/train.py", []),
        ("/srv/project", "/srv/projects/train.py", ["/srv/projects:/srv/projects:ro"]),
        ("/", "/opt/train.py", []),
    ],
)
def test_working_directory_and_script_are_mounted(work: str, script: str, more: list[str]) -> None:
    job = make_job(image="x")
    result = container_volumes(job, {"working_directory": {"path": work}, "script": {"path": script}}, "/r", "/t")
    assert result == ["/r:/r", "/t:/t", *([f"{work}:{work}"] if work != "/" else []), *more]


@pytest.mark.parametrize("launcher", ["torchrun", "env", "deepspeed", "mpirun", "accelerate"])
def test_every_launcher_runs_in_the_image(launcher: str) -> None:
    job = make_job(
        run_id="first", launcher=launcher, image="torch:1", interpreter="/opt/conda/bin/python", variables=("TOKEN",)
    )
    plan = build_node_plan(job, TABLE, TABLE.nodes[0], FACTS)
    assert plan["wrap"][:2] == ["docker", "run"] and plan["remove"] == ["docker", "rm", "--force", "muster-first-node0"]
    assert "--env=TOKEN" in plan["wrap"] and "--env=NCCL_SOCKET_IFNAME" in plan["wrap"]
    assert launcher == "mpirun" or plan["command"][0] == "/opt/conda/bin/python"
    assert plan["path_prefix"] == "/usr/bin"


def test_software_of_the_node_is_not_checked_for_an_image() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for name, item in facts.items():
            item["interpreter"] = ""
            item["software"]["packages"] = {}
            item["programs"] = {} if name == "node2" else {"docker": "/usr/bin/docker"}

    assert spoilt(spoil, 2, image="torch:1") == [("error", "program-missing", ("node2",))]
    assert spoilt(spoil, 2, image="torch:1", launcher="deepspeed") == [("error", "program-missing", ("node2",))]


def test_script_gpus_and_kernel_are_checked_for_an_image_too() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for item in facts.values():
            item["programs"] = {"docker": "/usr/bin/docker"}
            del item["software"]  # the interpreter is the image's
        facts["node2"]["kernel"] = "6.8.0-51-generic"
        facts["node3"]["script"]["sha256"] = "bb" * 32
        for device in facts["node4"]["gpus"]["devices"]:
            device["name"] = "A100-SXM4-80GB"

    assert spoilt(spoil, 4, 1, image="torch:1") == [
        ("error", "skew-script", ("node3",)),
        ("warning", "skew-gpu", ("node4",)),
        ("warning", "skew-kernel", ("node2",)),
    ]


IMAGE = {
    "id": "aa" * 32, "size": 8 << 30, "root": "/var/lib/docker", "free": 50 << 30, "toolkit": True,
    "memory_limit": True, "error": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("node", "spoilt_by", "result"),
    [
        ("node2", {}, []),
        ("node2", {"id": "", "size": None}, [("error", "image-missing", ("node2",))]),
        (
            "node1",
            {"id": "", "size": None, "free": 4 << 30},
            [("error", "image-missing", ("node1",)), ("error", "image-no-room", ("node1",))],
        ),
        ("node3", {"id": "bb" * 32}, [("error", "image-skew", ("node3",))]),
        ("node2", {"toolkit": False}, [("error", "image-gpu-toolkit", ("node2",))]),
        (
            "node2",
            {"id": "", "size": None, "free": None, "root": "", "error": "permission denied"},
            [("error", "image-unread", ("node2",))],
        ),
    ],
)
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_image_problem_is_reported_for_its_node(
    engine: str, node: str, spoilt_by: dict[str, Any], result: list[Any]
) -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for item in facts.values():
            item["programs"] = {engine: f"/usr/bin/{engine}"}
            item["image"] = {**IMAGE, **(spoilt_by if item["hostname"] == node else {})}

    assert spoilt(spoil, 3, 1, image="torch:1", container_engine=engine) == result


def test_differing_image_is_reported_with_both_digests_and_a_command() -> None:
    job, facts = make_job(image="torch:1"), cluster(3)
    for item in facts.values():
        item["image"] = IMAGE
    facts["node2"]["image"] = {**IMAGE, "id": "bb" * 32}
    table = build_rank_table([HostSpec(name, address(name), 1) for name in facts])
    (finding,) = check_images(CheckContext(job, table, facts))
    assert finding.nodes == ("node2",) and "node2 has bbbbbbbbbbbb; the others have aaaaaaaaaaaa" in finding.problem
    assert finding.remedy == "ansible-playbook site.yml --tags container_image -e container_image_name=torch:1"


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (0, f"sha256:{'ab' * 32} 12\n", ("ab" * 32, 12, "")),
        (0, f"time=x level=warning\n{'ab' * 32} 12\n", ("ab" * 32, 12, "")),
        (1, "\nError response from daemon: No such image: a\n", ("", None, "")),
        (1, "\nError: No such image: a\n", ("", None, "")),
        (125, "Error: inspecting object: a: image not known\n", ("", None, "")),
        (1, "permission denied while trying to connect\n", ("", None, "permission denied while trying to connect")),
        (None, "", ("", None, "no reply within 10 s")),
    ],
)
def test_engine_output_about_images_is_parsed(code: int | None, message: str, expected: tuple[Any, ...]) -> None:
    assert image.parse_image(CommandOutput(code, message, hangs=code is None)) == expected


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_image_facts_are_read_from_the_engine(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / engine
    stand_in.write_text(f"#!/bin/sh\ncase $1 in image) echo {'ab' * 32} 12;; info) echo {tmp_path}/not/ours;; esac\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(image, "ENGINE_PATH", str(tmp_path))
    monkeypatch.setattr(image, "CDI_DIRECTORIES", (str(tmp_path),))
    result = image.ImageQuery(engine, "torch:1").result()
    assert result.pop("free") > 0, "of the disk above what is another user's"
    document = {"id": "ab" * 32, "size": 12, "root": f"{tmp_path}/not/ours", "error": ""}
    assert result == {**document, "toolkit": False, "memory_limit": None}
    for name in ("nvidia-container-runtime-hook", "nvidia.yaml"):
        (tmp_path / name).write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
        (tmp_path / name).chmod(0o755)
    assert image.has_toolkit(engine)


WARNS = 'time="x" level=warning msg="The cgroupv2 manager is set to systemd but there is no systemd user session"\n'


@pytest.mark.parametrize(
    ("engine", "root", "message", "limit"),
    [
        ("docker", False, "/data|true", True),
        ("docker", False, "/data|false", False),
        ("podman", False, "/data|systemd [cpu memory pids]", True),
        ("podman", False, f"{WARNS}/data|cgroupfs [cpu memory pids]", False),
        ("podman", False, "/data|systemd [pids]", False),
        ("podman", True, "/data|cgroupfs [cpuset cpu memory]", True),
        ("podman", True, "/data|cgroupfs []", False),
    ],
)
def test_memory_limit_support_is_read_from_engine_info(engine: str, root: bool, message: str, limit: bool) -> None:
    """The output also shows where images are stored, regardless of preceding warnings."""
    assert image.parse_info(engine, message + "\n", root) == ("/data", limit)
    assert image.parse_info(engine, "Cannot connect\n", root) == ("", None)


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize(
    ("options", "holds", "reported"),
    [
        (["--memory=8g"], False, True),
        (["--memory", "8g"], False, True),
        (["-m8g"], False, True),
        (["--memory=8g"], True, False),
        (["--memory=8g"], None, False),
        (["--memory-swappiness=0", "--cap-add=SYS_PTRACE"], False, False),
    ],
)
def test_memory_limit_that_cannot_be_enforced_is_reported(
    engine: str, options: list[str], holds: bool | None, reported: bool
) -> None:
    job, facts = make_job(image="torch:1", container_engine=engine, container_options=tuple(options)), cluster(3)
    for item in facts.values():
        item["image"] = {**IMAGE, "memory_limit": holds if item["hostname"] == "node2" else True}
    table = build_rank_table([HostSpec(name, address(name), 1) for name in facts])
    result = check_images(CheckContext(job, table, facts))
    assert [(item.severity, item.id, item.nodes) for item in result] == (
        [("warning", "image-memory-limit", ("node2",))] if reported else []
    )
    if reported and engine == "podman":
        assert (
            "apt-get install dbus-user-session" in result[0].remedy
            and "the user's own systemd" in result[0].requirement
        )


def test_podman_as_root_needs_no_user_systemd_for_a_memory_limit() -> None:
    job, facts = make_job(image="torch:1", container_engine="podman", container_options=("-m8g",)), cluster(2)
    for item in facts.values():
        item.update(image={**IMAGE, "memory_limit": False}, user="root")
    table = build_rank_table([HostSpec(name, address(name), 1) for name in facts])
    (result,) = check_images(CheckContext(job, table, facts))
    assert "cgroup_enable=memory" in result.remedy and "dbus" not in result.remedy + result.requirement


def test_docker_group_granted_after_login_is_entered_with_sg(monkeypatch: pytest.MonkeyPatch) -> None:
    user, argv = pwd.getpwuid(os.geteuid()).pw_name, ["docker", "info", "a b"]
    assert image.add_group("no-such-group", argv) == argv
    for members, groups, late in (([user], [], True), ([user], [77], False), (["bob"], [], False)):
        entry = grp.struct_group(("docker", "x", 77, members))
        monkeypatch.setattr(grp, "getgrnam", {"docker": entry}.__getitem__)
        monkeypatch.setattr(os, "getgroups", lambda groups=groups: groups)
        assert image.add_group("docker", argv) == (["sg", "docker", "-c", "docker info 'a b'"] if late else argv)
