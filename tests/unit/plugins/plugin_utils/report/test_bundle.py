"""The archive of a run for support requests explains the failure, and contains no secret."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.bundle import write_bundle
from ansible_collections.muster.training.plugins.plugin_utils._report.redact import REMOVED
from tests.unit.plugins.plugin_utils.report.test_redact import ASSIGNED_SECRET, ASSIGNMENTS, SECRETS

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
PLAIN = "correct-horse-9"  # a secret that has no known form, in one of the job's variables


@pytest.fixture
def record(tmp_path: Path) -> Path:
    planted = "\n".join(
        [*SECRETS.values(), *(text.format(ASSIGNED_SECRET) for text in ASSIGNMENTS), f"login with {PLAIN}"]
    )
    directory = tmp_path / "first"
    logs = directory / "logs" / "node0" / "ranks" / "0"
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_text("early\n" * 500 + planted + f"\n\x1b[31m{OOM}\n")
    (logs / "stacks.txt").write_text(f"rank 0: train.py:88\n{planted}")
    (logs / "model.bin").write_bytes(b"weights")
    (directory / "token").write_text("the token of the run")
    (directory / "notes.txt").write_text("mine")
    os.symlink("/etc/passwd", logs / "stdout.log")
    plan = {
        "run_id": "first",
        "environment": {"LOGIN": PLAIN, "MUSTER_RUN_ID": "run-of-may-1"},
        "arguments": ["--wandb-key", *SECRETS.values(), f"--token={ASSIGNED_SECRET}"],
    }
    failure = {"node": "a", "rank": 0, "error": OOM, "log": "x", "last_lines": [*planted.split("\n"), OOM]}
    result = {"run_id": "run-of-may-1", "state": "failed", "reason": f"it used {PLAIN}", "first_failure": failure}
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "result.json").write_text(json.dumps(result))
    return directory


def contents(record: Path) -> dict[str, str]:
    path = write_bundle(record)
    with tarfile.open(path) as archive:
        return {
            member.name.removeprefix("first/"): stream.read().decode()
            for member in archive.getmembers()
            if (stream := archive.extractfile(member))
        }


def test_archive_contains_the_verdict_the_plan_and_the_ends_of_logs(record: Path) -> None:
    files = contents(record)
    assert sorted(files) == [
        "README.txt",
        "logs/node0/ranks/0/stacks.txt",
        "logs/node0/ranks/0/stderr.log",
        "plan.json",
        "result.json",
        "verdict.txt",
    ]
    assert (
        "cause:        The model, optimizer" in files["verdict.txt"] and "[cuda-out-of-memory]" in files["verdict.txt"]
    )
    assert files["logs/node0/ranks/0/stderr.log"].rstrip().endswith(OOM)
    assert files["logs/node0/ranks/0/stderr.log"].count("early") < 120
    assert files["verdict.txt"].startswith("run-of-may-1 failed\n")
    assert "train.py:88" in files["logs/node0/ranks/0/stacks.txt"]
    assert json.loads(files["plan.json"])["environment"] == {"LOGIN": REMOVED, "MUSTER_RUN_ID": REMOVED}


def test_archive_holds_no_planted_secret(record: Path) -> None:
    files = contents(record)
    for name, text in files.items():
        for secret in [*SECRETS.values(), ASSIGNED_SECRET, PLAIN, "the token of the run", "root:"]:
            assert secret not in text, name
            assert json.dumps(secret)[1:-1] not in text, name
        assert "\x1b" not in text, name


def test_archive_is_private_and_replaces_the_previous_one(record: Path) -> None:
    first = write_bundle(record)
    assert first == record / "first.tar.gz" and first.stat().st_mode & 0o777 == 0o600
    assert write_bundle(record) == first
    assert not list(record.glob(".first*"))


def test_record_without_a_result_or_logs_still_gives_an_archive(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    assert list(contents(tmp_path / "first")) == ["README.txt"]
    (tmp_path / "first" / "result.json").write_text('{"first_failure": {"error": [], "last_lines": 3}, "state": {}}')
    assert "verdict.txt" in contents(tmp_path / "first")
