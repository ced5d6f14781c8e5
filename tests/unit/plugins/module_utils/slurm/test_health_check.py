"""Slurm's health check: the problems of a node, and when it is drained and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import describe_xid
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import MARK
from ansible_collections.muster.training.plugins.module_utils._slurm import health_check, health_readings
from ansible_collections.muster.training.plugins.module_utils._slurm.health_findings import (
    MAX_REASON,
    NodeFinding,
    decide,
    find_problems,
    parse_node,
    reason_for,
    update_baseline,
)

EMPTY_BASELINE: dict[str, Any] = {"ports": [], "nvlinks": {}}
XID = NodeFinding("gpu-xid", "Xid 79 on GPU 3", "Xid 79")
RUN = NodeFinding("busy", "run bert of ada is active", "bert")


def readings(**changes: Any) -> dict[str, Any]:
    """Return the readings of a node without any problem."""
    return {
        "missing_gpus": [],
        "smi": "ok",
        "gpus": [],
        "nvlinks": [],
        "kernel_errors": [],
        "ports": [],
        "mounts": {"/data": ""},
        "disks": {"/": {"bytes": 1 << 40, "inodes": 1 << 20}},
        "runs": [],
        **changes,
    }


def gpu(**changes: Any) -> dict[str, Any]:
    return {"index": 3, "uuid": "GPU-3", "pci": "00000000:44:00.0", "rows": None, **changes}


def kernel_error(code: int) -> dict[str, Any]:
    return {**describe_xid(code, "0000:44:00", "text")._asdict(), "time": 100.0, "count": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"runs": [{"run_id": "bert", "owner": "ada"}]}, ["busy"]),
        ({"missing_gpus": ["/dev/nvidia3"]}, ["gpu-missing"]),
        ({"smi": "hangs"}, ["gpu-driver"]),
        ({"smi": "absent"}, []),
        ({"kernel_errors": [kernel_error(79)], "gpus": [gpu()]}, ["gpu-xid"]),
        ({"kernel_errors": [kernel_error(31)]}, []),  # caused by the job itself
        ({"gpus": [gpu(rows={"failure": True})]}, ["gpu-memory-rows"]),
        ({"mounts": {"/data": "Transport endpoint is not connected"}}, ["mount-dead"]),
        ({"disks": {"/tmp": {"bytes": 1 << 20, "inodes": 1 << 20}}}, ["disk-full"]),
        ({"disks": {"/tmp": {"bytes": 1 << 40, "inodes": 3}}}, ["disk-full"]),
    ],
)
def test_problems_are_reported(changes: dict[str, Any], expected: list[str]) -> None:
    assert [finding.id for finding in find_problems(readings(**changes), EMPTY_BASELINE)] == expected


def test_port_and_nvlinks_are_reported_missing_only_if_the_node_had_them_before() -> None:
    healthy = readings(
        ports=[{"name": "mlx5_0/1", "state": "ACTIVE"}, {"name": "mlx5_1/1", "state": "DOWN"}],
        nvlinks=[{"index": 0, "active": [0, 1, 2]}],
    )
    degraded = readings(ports=[{"name": "mlx5_0/1", "state": "DOWN"}], nvlinks=[{"index": 0, "active": [0]}])
    documents: list[Any] = [None, [], {"ports": 5, "nvlinks": {"0": "many"}}]
    for damaged in documents:
        assert find_problems(degraded, update_baseline(damaged, degraded)) == []
    baseline = update_baseline(update_baseline(None, healthy), degraded)
    assert [finding.id for finding in find_problems(degraded, baseline)] == ["rdma-port-down", "nvlink-down"]
    assert find_problems(healthy, baseline) == []


@pytest.mark.parametrize(
    ("line", "state", "reason"),
    [
        ("NodeName=a State=IDLE ThreadsPerCore=1", "IDLE", ""),
        (
            "NodeName=a State=IDLE+DRAIN CPUs=2 Reason=muster: busy: run=a of b [root@2026-11-27T21:00:00]",
            "IDLE+DRAIN",
            "muster: busy: run=a of b",
        ),
        ("State=DOWN* Reason=Not responding [slurm@2026-11-27T21:00:00] Comment=x", "DOWN*", "Not responding"),
    ],
)
def test_node_is_parsed(line: str, state: str, reason: str) -> None:
    assert parse_node(line) == {"state": state, "reason": reason}


IDLE = {"state": "IDLE", "reason": ""}
OWN_DRAIN = {"state": "IDLE+DRAIN", "reason": reason_for([XID])}
FOREIGN_DRAIN = {"state": "MIXED+DRAIN", "reason": "disk swap on Monday"}


@pytest.mark.parametrize(
    ("node", "findings", "drained_for", "action", "accepted"),
    [
        (IDLE, [], [], "", True),
        (IDLE, [XID], [], "drain", False),
        (OWN_DRAIN, [XID], [], "", False),
        (OWN_DRAIN, [RUN], [], "explain", False),
        (OWN_DRAIN, [], ["gpu-xid Xid 79"], "resume", True),
        (FOREIGN_DRAIN, [], [], "", True),  # drained for a different reason, so it is not resumed
        (FOREIGN_DRAIN, [XID], [], "", False),
        (IDLE, [XID], ["gpu-xid Xid 79"], "", True),  # a person resumed it nevertheless
        (IDLE, [XID, RUN], ["gpu-xid Xid 79"], "drain", False),
    ],
)
def test_drain_and_resume_decisions_are_made(
    node: dict[str, str], findings: list[NodeFinding], drained_for: list[str], action: str, accepted: bool
) -> None:
    decision = decide(node, findings, drained_for)
    assert (decision.action, decision.accepted) == (action, accepted)


def test_reason_is_short_and_printable() -> None:
    reason = reason_for([NodeFinding("busy", "\x1b[31m" + "long " * 100, ""), XID])
    assert len(reason) <= MAX_REASON and reason.isprintable() and reason.endswith(" (and 1 more)")
    assert reason_for([XID]) == "muster: gpu-xid: Xid 79 on GPU 3"


def test_mounts_of_the_role_data_are_used(tmp_path: Path) -> None:
    (tmp_path / "data.mount").write_text(f"{MARK}\n[Mount]\nWhat=b\nWhere={tmp_path}\nType=fuse\n")
    (tmp_path / "other.mount").write_text("[Mount]\nWhere=/somewhere\n")
    assert health_readings.read_mounts(str(tmp_path)) == {str(tmp_path): "nothing is mounted there"}


def test_disks_are_read_once_per_device(tmp_path: Path) -> None:
    disks = health_readings.read_disks([str(tmp_path), str(tmp_path), "/missing"])
    assert list(disks) == [str(tmp_path)] and disks[str(tmp_path)]["bytes"] > 0


def test_process_outside_of_a_step_is_not_counted() -> None:
    assert not health_readings.is_in_step(os.getpid())


SCONTROL = """#!/bin/sh
case "$1" in
show) cat "$FAKE/node";;
update) shift; echo "$*" >> "$FAKE/updates"
  case "$*" in
  *UNDRAIN*) echo "State=IDLE" > "$FAKE/node";;
  *) echo "State=IDLE+DRAIN ${*#*DRAIN } [root@x]" > "$FAKE/node";;
  esac;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a fake scontrol, and the files of the health check."""
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "node").write_text("State=IDLE\n")
    (tmp_path / "updates").touch()
    (tmp_path / "settings").write_text(json.dumps({"node": "gpu1", "gpu_files": ["/dev/null"], "skip": ["disk-full"]}))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(tmp_path))
    return tmp_path


def checked(fake: Path, mode: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> int:
    """Run the health check with these readings; return the exit status."""
    files = health_check.Files(str(fake / "settings"), str(fake / "baseline"), str(fake / "drained"))
    with monkeypatch.context() as patch:
        patch.setattr(health_readings, "read_node", lambda gpu_files, quick: readings(**changes))
        return health_check.check_node(mode, files.read_settings(), files)


def test_node_is_drained_and_resumed(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"runs": [{"run_id": "bert", "owner": "ada"}]}
    assert checked(fake, "check", monkeypatch) == 0 and (fake / "updates").read_text() == ""
    assert checked(fake, "check", monkeypatch, **run) == 0
    reason = "muster: busy: run bert, owned by ada, was started without Slurm and is active"
    assert (fake / "updates").read_text() == f"NodeName=gpu1 State=DRAIN Reason={reason}\n"
    assert checked(fake, "check", monkeypatch, **run) == 0
    assert (fake / "updates").read_text().count("\n") == 1, "nothing has changed"
    assert checked(fake, "check", monkeypatch) == 0
    assert (fake / "updates").read_text().splitlines()[1:] == ["NodeName=gpu1 State=UNDRAIN"]
    assert json.loads((fake / "drained").read_text()) == []


def test_prolog_refuses_a_job_on_an_unfit_node(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"missing_gpus": ["/dev/nvidia0"]}
    assert checked(fake, "prolog", monkeypatch) == 0
    assert checked(fake, "prolog", monkeypatch, **missing) == health_check.REFUSED
    assert "State=DRAIN Reason=muster: gpu-missing" in (fake / "updates").read_text()
    (fake / "node").write_text("State=IDLE\n")  # a person has resumed it
    assert checked(fake, "prolog", monkeypatch, **missing) == 0


def test_skipped_findings_are_ignored(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"disks": {"/": {"bytes": 0, "inodes": 0}}}
    assert checked(fake, "prolog", monkeypatch, **full) == 0
    assert (fake / "updates").read_text() == ""


def test_damaged_settings_are_reported(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fake / "settings").write_text("{")
    with pytest.raises(Exception, match="is missing or damaged"):
        health_check.Files(str(fake / "settings")).read_settings()
    assert health_check.main(["everything"]) == 2
    assert "usage" in capsys.readouterr().out


def test_installed_program_runs_standalone(tmp_path: Path) -> None:
    """Its imports are installed with it; without settings it fails with a message, and without a traceback."""
    from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import program_sources

    for path, text in program_sources("_slurm.health_check").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    argv = [sys.executable, "-I", "-S", str(tmp_path / "health_check.py"), "prolog"]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (completed.returncode, completed.stderr) == (1, "")
    assert "slurm_health.json is missing or damaged" in completed.stdout
