"""Mounts, disk space, limits, clocks, and leftovers of an earlier setup."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.system import clock_offset, matches_interface
from tests.unit.healthy import GIB, Facts, cluster, findings, nothing, spoilt, together

EVERYONE = ("node1", "node2", "node3", "node4")


def mount(facts: dict[str, Facts], name: str, state: str, error: str = "", needed: str = "requested") -> None:
    item = {"point": "/data", "type": "nfs4", "source": "10.0.0.5:/data", "state": state, "error": error}
    facts[name]["storage"]["mounts"].append({**item, "requirement": needed})


def disk(facts: dict[str, Facts], name: str, purpose: str = "runs", **values: Any) -> None:
    facts[name]["storage"]["disks"][purpose].update(values)


def shm(facts: dict[str, Facts], name: str, size: float) -> None:
    facts[name]["storage"]["shm"]["total_bytes"] = int(size)


def limits(facts: dict[str, Facts], name: str, rdma: bool = False, **values: int) -> None:
    facts[name]["system"]["limits"].update(values)
    facts[name]["system"]["rdma"] = ["mlx5_0"] if rdma else []


def clock(facts: dict[str, Facts], ahead: float, *names: str) -> None:
    for name in names:
        for moment in ("start", "end"):
            facts[name]["clock"][moment] += ahead


def add_leftover_variable(facts: dict[str, Facts], node: str, name: str, value: str) -> None:
    item = {"name": name, "value": value, "where": "/etc/environment line 3"}
    facts[node]["system"]["left_over"].append(item)


def dead_data(facts: dict[str, Facts]) -> None:
    """Put the job on a mount that does not respond, so that nothing on it was examined."""
    mount(facts, "node2", "hangs", "no reply within 3 s")
    unreadable = {"is_file": False, "is_directory": False, "readable": False, "dead_mount": "/data"}
    facts["node2"]["working_directory"] = {"path": "/data/project", **unreadable}
    facts["node2"]["script"] = {"path": "/data/project/train.py", **unreadable}


def s3_mount(facts: dict[str, Facts], *names: str, **more: Any) -> None:
    for name in names:
        item = {"point": "/mnt/s3", "type": "mount-s3", "source": "s3://b/", "state": "ok", "error": ""}
        facts[name]["storage"]["mounts"].append({**item, "requirement": "requested", **more})


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (["--output_dir", "/mnt/s3/out"], {}, "--output_dir is /mnt/s3/out"),
        (["--output-dir=/mnt/s3/out"], {}, "--output-dir is /mnt/s3/out"),
        (["--checkpoint_dir", "../../mnt/s3/c"], {}, "--checkpoint_dir is /mnt/s3/c"),
        (["--model_folder", "/mnt/s3"], {}, "--model_folder is /mnt/s3"),
        (["--output_dir", "/mnt/s3x"], {}, ""),
        (["--data_dir", "/mnt/s3/data", "--model_name_or_path", "/mnt/s3/model", "--ckpt_path", "/mnt/s3/c"], {}, ""),
        (["--output_dir"], {}, ""),
        ([], {"runs_directory": "/mnt/s3/runs"}, "launch_node_directory is /mnt/s3/runs"),
        ([], {"working_directory": {"path": "/mnt/s3/project"}}, "launch_working_directory is /mnt/s3/project"),
    ],
)
def test_output_on_a_mount_without_rename_is_reported(
    arguments: list[str], change: dict[str, Any], message: str
) -> None:
    facts = cluster(2)
    s3_mount(facts, "node1", "node2")
    for node in facts.values():
        for name, value in change.items():
            node[name] = {**node[name], **value} if isinstance(value, dict) else value
    result = [item for item in findings(facts, args=arguments) if item.id == "mount-no-rename"]
    assert [item.nodes for item in result] == ([("node1", "node2")] if message else [])
    assert not message or message in result[0].problem


@pytest.mark.parametrize(
    ("state", "needed", "severity"),
    [
        ("unreadable", "requested", "error"),
        ("unreadable", "boot", "warning"),  # root's backup
        ("unreadable", "", ""),  # another user's FUSE mount, /run/user/1000/doc
        ("missing", "requested", "error"),
        ("missing", "boot", "error"),
        ("missing", "optional", "warning"),  # the disk of a different machine type
        ("stale", "", "error"),  # df would hang
        ("hangs", "boot", "error"),
    ],
)
def test_mount_severity_depends_on_state_and_need(state: str, needed: str, severity: str) -> None:
    result = spoilt(lambda f: mount(f, "node2", state, "permission denied", needed))
    assert [(item, nodes) for item, _id, nodes in result] == ([(severity, ("node2",))] if severity else [])


@pytest.mark.parametrize(
    "job",
    [
        {"args": ["--data", "/data/train"]},
        {"args": ["--data=/data/"]},
        {"args": ["../../data"]},
        {"working_directory": {"path": "/data/project"}},
        {"runs_directory": "/data/runs"},
        {"interpreter": "/data/venv/bin/python"},
    ],
)
def test_unreadable_mount_that_the_job_uses_is_an_error(job: dict[str, Any]) -> None:
    facts = cluster(2)
    mount(facts, "node2", "unreadable", "permission denied", needed="")
    for name, value in job.items():
        if name != "args":
            node = facts["node2"]
            node[name] = {**node[name], **value} if isinstance(value, dict) else value
    (result,) = findings(facts, args=job.get("args", []))
    assert (result.severity, result.id, result.nodes) == ("error", "mount-unreadable", ("node2",))


def test_mounts_with_different_contents_are_reported() -> None:
    facts = cluster(3)
    s3_mount(facts, "node1", "node2", listing={"count": 2, "digest": "a"})
    s3_mount(facts, "node3", listing={"count": 0, "digest": "b"})
    (result,) = findings(facts)
    assert (result.severity, result.id, result.nodes) == ("warning", "mount-differs", ("node1", "node2", "node3"))
    assert result.problem == "/mnt/s3: 2 names on node1, node2, 0 names on node3"


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        (lambda f: mount(f, "node2", "ok"), []),
        (lambda f: mount(f, "node2", "missing"), [("error", "mount-missing", ("node2",))]),
        (
            lambda f: mount(f, "node2", "stale", "Transport endpoint is not connected"),
            [("error", "mount-stale", ("node2",))],
        ),
        (dead_data, [("error", "mount-stale", ("node2",))]),
        (lambda f: mount(f, "node2", "unreadable", "permission denied"), [("error", "mount-unreadable", ("node2",))]),
        (
            together(lambda f: mount(f, "node2", "missing"), lambda f: mount(f, "node4", "missing")),
            [("error", "mount-missing", ("node2", "node4"))],
        ),
        (lambda f: disk(f, "node2", free_bytes=3 * GIB), [("warning", "disk-full", ("node2",))]),
        (lambda f: disk(f, "node2", free_bytes=GIB // 10), [("error", "disk-full", ("node2",))]),
        (lambda f: disk(f, "node2", free_inodes=12), [("error", "disk-full", ("node2",))]),
        (lambda f: disk(f, "node2", "work", free_bytes=GIB, device=7), [("warning", "disk-full", ("node2",))]),
        # temporary files do not need room for checkpoints
        (lambda f: disk(f, "node2", "temporary", free_bytes=GIB, device=7), []),
        (lambda f: disk(f, "node2", "temporary", free_bytes=0, device=7), [("error", "disk-full", ("node2",))]),
        (lambda f: shm(f, "node3", 64 * 2**20), [("warning", "shm-small", ("node3",))]),
        (lambda f: f["node3"]["storage"].update(shm=None), [("warning", "shm-small", ("node3",))]),
        (lambda f: limits(f, "node2", memlock=65536), [("warning", "memlock-small", ("node2",))]),
        (lambda f: limits(f, "node2", memlock=8 * 2**20), []),
        (lambda f: limits(f, "node2", memlock=8 * 2**20, rdma=True), [("error", "memlock-small", ("node2",))]),
        (lambda f: limits(f, "node2", memlock=-1, rdma=True), []),
        (lambda f: limits(f, "node2", nofile=256), [("warning", "nofile-small", ("node2",))]),
        # the nodes' clocks are compared with each other, not with the controller's
        (lambda f: clock(f, 2.0, "node3"), [("warning", "clock-skew", ("node3",))]),
        (lambda f: clock(f, -3600.0, "node3"), [("error", "clock-skew", ("node3",))]),
        (lambda f: clock(f, 3600.0, *f), []),
        (lambda f: clock(f, 0.9, "node3"), []),
        (lambda f: add_leftover_variable(f, "node2", "RANK", "0"), [("warning", "environment-left-over", ("node2",))]),
        (
            lambda f: add_leftover_variable(f, "node2", "NCCL_SOCKET_IFNAME", "eth0"),
            [("warning", "interface-variable", ("node2",))],
        ),
        (lambda f: add_leftover_variable(f, "node2", "NCCL_SOCKET_IFNAME", "ens"), []),
    ],
)
def test_system_problem_is_reported_for_its_node(spoil: Any, result: Any) -> None:
    assert spoilt(spoil) == result


def test_disk_without_free_inodes_needs_inodes_rather_than_space() -> None:
    facts = cluster(2)
    disk(facts, "node2", free_inodes=399)
    (finding,) = findings(facts)
    assert "399 inodes free" in finding.problem
    assert finding.requirement == "1000 inodes free: each file takes one, whatever its size"
    assert "GiB" not in finding.requirement + finding.remedy


def test_clock_that_differs_from_the_controllers_is_the_wrong_one_of_two() -> None:
    assert spoilt(lambda f: clock(f, 90.0, "node1"), count=2) == [("error", "clock-skew", ("node1",))]
    assert spoilt(lambda f: clock(f, 90.0, "node2"), count=2) == [("error", "clock-skew", ("node2",))]


def test_slow_reply_is_not_treated_as_clock_skew() -> None:
    """A node that took 20 s to reply may have read its clock at any time during that period."""

    def spoil(facts: dict[str, Facts]) -> None:
        facts["node2"]["clock"] = {"before": 990.0, "start": 1000.1, "end": 1000.2, "after": 1010.0}

    assert spoilt(spoil) == []
    assert clock_offset({"before": 990.0, "start": 1000.1, "end": 1000.2, "after": 1010.0}) == pytest.approx(
        (-9.8, 10.1)
    )


def test_thresholds_can_be_set() -> None:
    facts = cluster(2)
    shm(facts, "node2", 64 * 2**20)
    assert findings(facts, thresholds={"shm_gib": 0.05}) == []
    assert [finding.nodes for finding in findings(facts, thresholds={"disk_gib": 60})] == [
        ("node1", "node2"),
        ("node2",),
    ]


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NCCL_SOCKET_IFNAME", "ens5", True),
        ("NCCL_SOCKET_IFNAME", "ens", True),
        ("NCCL_SOCKET_IFNAME", "=ens", False),
        ("NCCL_SOCKET_IFNAME", "=ens5", True),
        ("NCCL_SOCKET_IFNAME", "=eth0,ens5", True),
        ("NCCL_SOCKET_IFNAME", "eth", False),
        ("NCCL_SOCKET_IFNAME", "^docker0", True),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo", True),
        ("GLOO_SOCKET_IFNAME", "ens5", True),
        ("GLOO_SOCKET_IFNAME", "ens", False),
        ("GLOO_SOCKET_IFNAME", "ens5,eth0", False),
        ("TP_SOCKET_IFNAME", "^lo", False),
    ],
)
def test_interface_variables_are_matched_as_each_library_reads_them(variable: str, value: str, expected: bool) -> None:
    assert matches_interface(variable, value, {"lo", "ens5"}) is expected
