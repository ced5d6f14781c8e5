"""The plan of a Slurm cluster: its configuration from the states of the nodes."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import SlurmOptions
from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster_plan import (
    SlurmPlan,
    plan_cluster,
    slurm_name,
)

NODES = [{"name": "gpu1", "address": "10.0.0.11"}, {"name": "gpu2", "address": "10.0.0.12"}]


def state(**changes: Any) -> dict[str, Any]:
    """Return the state of a node with two GPUs and Slurm's packages."""
    return {
        "hostname": "ps2xyz",
        "systemd": True,
        "debian": True,
        "user": {"name": "ubuntu", "uid": 1000, "gid": 1000},
        "missing": [],
        "version": {"installed": "24.11.5", "available": ""},
        "cpus": {"sockets": 2, "cores": 32, "threads": 2},
        "memory": 100_000,
        "gpus": {"files": ["/dev/nvidia0", "/dev/nvidia1"], "model": "NVIDIA H100 80GB HBM3"},
        "cgroups": "v2",
        "units": {},
        "munge_key": "k",
        "files": {},
        "pam": "",
        "verification": "",
        **changes,
    }


def plan(options: SlurmOptions | None = None, **of_both: Any) -> SlurmPlan:
    return plan_cluster(NODES, {node["name"]: state(**of_both) for node in NODES}, options or SlurmOptions())


def text(planned: SlurmPlan, node: str, path: str) -> str:
    return next(str(file["content"]) for file in planned["files"][node] if file["path"] == path)


def paths(planned: SlurmPlan, node: str) -> set[str]:
    return {file["path"] for file in planned["files"][node]}


def test_nodes_have_the_names_and_addresses_of_the_inventory() -> None:
    planned = plan()
    conf = text(planned, "gpu1", "/etc/slurm/slurm.conf").splitlines()
    assert "SlurmctldHost=ps2xyz(10.0.0.11)" in conf, "slurmctld compares this with the name of its machine"
    assert (
        "NodeName=gpu2 NodeAddr=10.0.0.12 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=95000 "
        "Gres=gpu:nvidia_h100_80gb_hbm3:2 State=UNKNOWN"
    ) in conf
    assert text(planned, "gpu2", "/etc/default/slurmd").endswith(
        'SLURMD_OPTIONS="--conf-server 10.0.0.11:6817 -N gpu2"\n'
    )
    assert "-N gpu1" in text(planned, "gpu1", "/etc/default/slurmd")


def test_only_the_controller_has_the_configuration() -> None:
    planned = plan()
    assert planned["controller"] == "gpu1"
    assert {"/etc/slurm/slurm.conf", "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf"} <= paths(planned, "gpu1")
    assert not any(path.startswith("/etc/slurm/") for path in paths(planned, "gpu2"))
    assert "slurmctld" in planned["packages"]["gpu1"] and "slurmctld" not in planned["packages"]["gpu2"]


def test_each_gpu_has_a_line_so_a_missing_gpu_is_an_error() -> None:
    planned = plan()
    assert text(planned, "gpu1", "/etc/slurm/gres.conf").splitlines()[1:] == [
        f"NodeName={node} Name=gpu Type=nvidia_h100_80gb_hbm3 File=/dev/nvidia{number}"
        for node in ("gpu1", "gpu2")
        for number in (0, 1)
    ]
    assert "GresTypes=gpu\n" in text(planned, "gpu1", "/etc/slurm/slurm.conf")
    assert "nvidia-modprobe" in text(planned, "gpu2", "/etc/systemd/system/slurmd.service.d/50-muster.conf")


def test_node_without_gpus_has_no_gpu_lines() -> None:
    conf = text(plan(gpus={"files": [], "model": ""}), "gpu1", "/etc/slurm/slurm.conf")
    assert "Gres" not in conf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpus": {"sockets": "1\nProlog=/tmp/evil\n#", "cores": 1, "threads": 1}}, "as its CPUs"),
        ({"cpus": {"sockets": 1, "cores": 0, "threads": 1}}, "as its CPUs"),
        ({"cpus": {"sockets": True, "cores": 1, "threads": 1}}, "as its CPUs"),
        ({"cpus": None}, "None as its CPUs"),
        ({"memory": "1\nProlog=/tmp/evil"}, "as its memory"),
        ({"memory": -1}, "-1 as its memory"),
        ({"memory": 1e3}, "1000.0 as its memory"),
        ({"hostname": "x\nProlog=/tmp/evil\n#"}, "as its hostname"),
        ({"hostname": "x\n"}, "as its hostname"),
        ({"hostname": "gpu[1-9]"}, "as its hostname"),
        ({"hostname": ""}, "'' as its hostname"),
        ({"gpus": {"files": ["/dev/nvidia0\nProlog=/tmp/evil"], "model": ""}}, "as its GPU device files"),
        ({"gpus": {"files": ["/dev/nvidia0 Prolog=x"], "model": ""}}, "as its GPU device files"),
        ({"gpus": {"files": ["/tmp/evil"], "model": ""}}, "as its GPU device files"),
        ({"gpus": {"files": "/dev/nvidia0", "model": ""}}, "as its GPU device files"),
        ({"gpus": {"files": [f"/dev/nvidia{number}" for number in range(65)], "model": ""}}, "as its GPU device files"),
        ({"gpus": {"files": [], "model": 3}}, "as its GPU device files"),
    ],
)
def test_facts_of_a_node_add_nothing_to_the_configuration(change: dict[str, Any], message: str) -> None:
    for culprit in ("gpu1", "gpu2"):
        states = {node["name"]: state(**change if node["name"] == culprit else {}) for node in NODES}
        planned = plan_cluster(NODES, states, SlurmOptions())
        (error,) = planned["errors"]
        assert error.startswith(f"{culprit}: it reports ") and message in error and "\n" not in error
        contents = [file["content"] for files in planned["files"].values() for file in files]
        assert not any("Prolog" in content or "/tmp/evil" in content for content in contents)


@pytest.mark.parametrize(
    ("cgroups", "version", "plugin", "tracking"),
    [
        ("v2", "24.11.5", "autodetect", "cgroup"),
        ("v2", "22.05.8", "autodetect", "cgroup"),
        ("hybrid", "24.11.5", "disabled", "linuxproc"),
        ("hybrid", "22.05.8", "cgroup/v1", "linuxproc"),  # this version does not support `disabled` and exits
        ("v2", "21.08.5", "cgroup/v1", "linuxproc"),  # this version has no plugin for cgroup v2
    ],
)
def test_cgroups_are_used_where_slurm_supports_them(cgroups: str, version: str, plugin: str, tracking: str) -> None:
    planned = plan(cgroups=cgroups, version={"installed": version, "available": ""})
    assert f"CgroupPlugin={plugin}\n" in text(planned, "gpu1", "/etc/slurm/cgroup.conf")
    assert f"ProctrackType=proctrack/{tracking}\n" in text(planned, "gpu1", "/etc/slurm/slurm.conf")
    assert bool(planned["notices"]) is (tracking == "linuxproc")


def test_jobs_have_their_nodes_current_groups() -> None:
    """By default, slurmctld sends group IDs of its own node, which may be ten minutes old."""
    conf = text(plan(), "gpu1", "/etc/slurm/slurm.conf").splitlines()
    assert "LaunchParameters=disable_send_gids" in conf and "GroupUpdateTime=5" in conf


def test_job_on_idle_nodes_does_not_wait_for_a_pause_of_the_scheduler() -> None:
    for interval, expected in ((300, "batch_sched_delay=0,nohold_on_prolog_fail"), (0, "batch_sched_delay=0")):
        conf = text(plan(SlurmOptions(health_interval=interval)), "gpu1", "/etc/slurm/slurm.conf")
        assert f"SchedulerParameters={expected}\n" in conf


def test_settings_of_the_user_replace_those_of_the_role() -> None:
    planned = plan(SlurmOptions(settings={"SlurmdTimeout": 300, "SchedulerParameters": "bf_interval=10"}))
    conf = text(planned, "gpu1", "/etc/slurm/slurm.conf").splitlines()
    assert "SlurmdTimeout=300" in conf and "SchedulerParameters=bf_interval=10" in conf
    assert sum(line.startswith("SlurmdTimeout=") for line in conf) == 1


def test_accounting_needs_no_password() -> None:
    planned = plan(SlurmOptions(accounting=True))
    database = next(file for file in planned["files"]["gpu1"] if file["path"] == "/etc/slurm/slurmdbd.conf")
    assert (database["user"], database["mode"]) == ("slurm", "0600"), "slurmdbd refuses to start otherwise"
    assert "StoragePass" not in database["content"]
    conf = text(planned, "gpu1", "/etc/slurm/slurm.conf")
    assert "AccountingStorageHost=10.0.0.11\n" in conf and "jobcomp" not in conf
    assert planned["services"]["gpu1"] == ["munge", "mariadb", "slurmdbd", "slurmctld", "slurmd"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"user": {"name": "ubuntu", "uid": 1001, "gid": 1000}}, "gpu2 has ubuntu with uid 1001, gid 1000"),
        ({"version": {"installed": "22.05.8", "available": ""}}, "gpu1 has 24.11.5; gpu2 has 22.05.8"),
        ({"debian": False}, "gpu2: the system is neither Debian nor Ubuntu"),
        ({"systemd": False}, "gpu2: systemd is missing"),
    ],
)
def test_nodes_that_cannot_form_a_cluster_are_named(changes: dict[str, Any], message: str) -> None:
    planned = plan_cluster(NODES, {"gpu1": state(), "gpu2": state(**changes)}, SlurmOptions())
    assert len(planned["errors"]) == 1 and message in planned["errors"][0]
    assert plan()["errors"] == []


def test_patch_releases_may_differ() -> None:
    newer = state(version={"installed": "", "available": "24.11.7"})
    assert plan_cluster(NODES, {"gpu1": state(), "gpu2": newer}, SlurmOptions())["errors"] == []


@pytest.mark.parametrize(("name", "expected"), [("GPU_1.example.org", "gpu-1-example-org"), ("10.0.0.5", "10-0-0-5")])
def test_name_is_valid_in_slurm(name: str, expected: str) -> None:
    assert slurm_name(name) == expected


def test_names_that_slurm_cannot_distinguish_are_refused() -> None:
    nodes = [{"name": "gpu_1", "address": "10.0.0.1"}, {"name": "gpu-1", "address": "10.0.0.2"}]
    planned = plan_cluster(nodes, {"gpu_1": state(), "gpu-1": state()}, SlurmOptions())
    assert planned["errors"][0].startswith("gpu_1, gpu-1: all of them would be named 'gpu-1' in Slurm")


def as_planned(planned: SlurmPlan, node: str) -> dict[str, Any]:
    """Return the state of a node after the plan was applied and verified."""
    files = {
        file["path"]: {
            "user": file.get("user", "root"),
            "mode": file["mode"],
            "sha256": hashlib.sha256(file["content"].encode()).hexdigest(),
        }
        for file in planned["files"][node]
    }
    units = {name: {"active": "active", "enabled": "enabled"} for name in planned["services"][node]}
    return state(files=files, units=units, verification=planned["verification"])


def test_complete_cluster_needs_no_changes() -> None:
    planned = plan()
    assert planned["incomplete"] == ["gpu1", "gpu2"]
    states = {node["name"]: as_planned(planned, node["name"]) for node in NODES}
    assert plan_cluster(NODES, states, SlurmOptions())["incomplete"] == []

    differences: list[dict[str, Any]] = [
        {"munge_key": "other"},
        {"verification": "older"},
        {"units": {}},
        {"files": {}},
    ]
    for changes in differences:
        changed = {**states, "gpu2": {**states["gpu2"], **changes}}
        assert plan_cluster(NODES, changed, SlurmOptions())["incomplete"] == ["gpu2"], changes


def test_a_new_node_invalidates_the_verification_of_all_nodes() -> None:
    planned = plan()
    states = {node["name"]: as_planned(planned, node["name"]) for node in NODES} | {"gpu3": state()}
    nodes = [*NODES, {"name": "gpu3", "address": "10.0.0.13"}]
    assert plan_cluster(nodes, states, SlurmOptions())["incomplete"] == ["gpu1", "gpu2", "gpu3"]


PROGRAM: dict[str, list[dict[str, Any]]] = {
    "directories": [{"path": "/usr/local/lib/muster/slurm", "mode": "0755", "only_root": True}],
    "files": [{"path": "/usr/local/lib/muster/slurm/health_check.py", "mode": "0644", "content": "pass\n"}],
}


def test_health_check_is_installed_on_each_node_with_its_name_and_gpus() -> None:
    planned = plan(SlurmOptions(health_interval=120, health_skip=["gpu-xid"], program=PROGRAM))
    settings = json.loads(text(planned, "gpu2", "/etc/muster/slurm_health.json"))
    assert settings == {"node": "gpu2", "gpu_files": ["/dev/nvidia0", "/dev/nvidia1"], "skip": ["gpu-xid"]}
    conf = text(planned, "gpu1", "/etc/slurm/slurm.conf").splitlines()
    assert "HealthCheckInterval=120" in conf and "Prolog=/usr/local/lib/muster/slurm/prolog" in conf
    assert text(planned, "gpu2", "/usr/local/lib/muster/slurm/health-check").startswith("#!/bin/sh\n")
    directories = [directory["path"] for directory in planned["directories"]["gpu2"]]
    assert directories.count("/usr/local/lib/muster/slurm") == 1 and "/etc/muster" in directories


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (3, 1), (1, 0)])
def test_prolog_fails_only_if_the_program_refuses_the_node(tmp_path: Path, status: int, expected: int) -> None:
    """A failure of the program itself must not drain all nodes."""
    planned = plan(SlurmOptions(health_interval=120, program=PROGRAM))
    script = text(planned, "gpu1", "/usr/local/lib/muster/slurm/prolog")
    (tmp_path / "health_check.py").write_text(f"raise SystemExit({status})\n")
    script = script.replace("/usr/local/lib/muster/slurm", str(tmp_path))
    assert subprocess.run(["/bin/sh"], input=script, text=True, check=False).returncode == expected


def written(file: dict[str, Any]) -> dict[str, str]:
    """Return a file from the plan as reported by a node."""
    return {"user": "root", "mode": file["mode"], "sha256": hashlib.sha256(file["content"].encode()).hexdigest()}


def test_outdated_program_makes_a_node_incomplete() -> None:
    options = SlurmOptions(health_interval=120, program=PROGRAM)
    planned = plan(options)
    units = {name: {"active": "active", "enabled": "enabled"} for name in ("munge", "slurmd", "slurmctld")}
    states = {}
    for node, files in planned["files"].items():
        present = {file["path"]: written(file) for file in [*files, *PROGRAM["files"]]}
        states[node] = state(units=units, verification=planned["verification"], files=present)
    assert plan_cluster(NODES, states, options)["incomplete"] == []
    states["gpu2"]["files"][PROGRAM["files"][0]["path"]]["sha256"] = "0"
    assert plan_cluster(NODES, states, options)["incomplete"] == ["gpu2"]


def test_logins_need_a_job_except_those_of_admins() -> None:
    planned = plan(SlurmOptions(adopt_logins=True, adopt_admins=["ada"]))
    lines = [line.removesuffix(" # muster: logins of Slurm") for line in planned["pam"]]
    assert lines[-2:] == [
        "account sufficient pam_succeed_if.so quiet user in ada:root:ubuntu",
        "-account [success=ok ignore=ignore module_unknown=ignore default=bad] pam_slurm_adopt.so"
        " action_adopt_failure=deny action_generic_failure=deny # always: ada:root:ubuntu",
    ], "Ansible's own account comes first"
    skipped = lines[1 : lines.index("session [success=done default=bad] pam_unix.so") + 1]
    assert lines[0].startswith(f"session [success={len(skipped)} default=ignore] ")
    assert lines[0].endswith(" user in ada:root:ubuntu")
    assert "libpam-slurm-adopt" in planned["packages"]["gpu2"]
    assert "PrologFlags=Contain" in text(planned, "gpu1", "/etc/slurm/slurm.conf").splitlines()
    assert plan()["pam"] == [] and "libpam-slurm-adopt" not in plan()["packages"]["gpu2"]


@pytest.mark.parametrize(
    ("options", "changes", "expected"),
    [
        ({"adopt_logins": True}, {"cgroups": "hybrid"}, "slurm_adopt_logins needs cgroup v2"),
        ({"adopt_logins": True, "adopt_admins": ["a:b"]}, {}, "'a:b' is not a valid account name"),
        ({"adopt_logins": True}, {}, ""),
    ],
)
def test_logins_are_restricted_only_where_supported(
    options: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    errors = plan(SlurmOptions(**options), **changes)["errors"]
    assert (expected in errors[0]) if expected else errors == []
