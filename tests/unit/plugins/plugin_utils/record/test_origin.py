"""The origin of a run's job: recorded at the launch, and shown in the report."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action.launch_plan import read_origin
from ansible_collections.muster.training.plugins.plugin_utils._record.origin import describe_origin

COMMIT = "3f786850e387550fdab836ed7e6dc881de23001b"
ORIGIN = {
    "job_file": "/home/me/toy/job.yml",
    "source": "/home/me/toy",
    "commit": COMMIT,
    "dirty": True,
    "requirements": "requirements.txt",
    "requirements_digest": "9a3a45d01531a20e89ac6ae10b0b0beb",
}


def test_origin_is_described_on_separate_lines() -> None:
    assert describe_origin(ORIGIN) == [
        "job file: /home/me/toy/job.yml",
        "code: /home/me/toy, commit 3f786850e387, with uncommitted changes",
        "requirements: requirements.txt, hash 9a3a45d01531",
    ]
    assert describe_origin({**ORIGIN, "dirty": False})[1] == "code: /home/me/toy, commit 3f786850e387"
    assert describe_origin({**ORIGIN, "dirty": None})[1] == "code: /home/me/toy, commit 3f786850e387, changes unknown"
    assert describe_origin({"source": "/home/me/toy", "dirty": None}) == ["code: /home/me/toy, not in a git checkout"]


@pytest.mark.parametrize("document", [None, [], "text", {}, {"source": 5, "dirty": "x"}, {"job_file": ["a"]}])
def test_anything_in_a_record_is_accepted(document: Any) -> None:
    assert all(isinstance(line, str) for line in describe_origin(document))


def test_commit_and_changes_of_the_code_are_read(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    (tmp_path / "train.py").write_text("print(1)\n")
    code = {"source": str(tmp_path), "requirements": "requirements.txt", "required": "9a3a"}
    assert read_origin(None, code)["commit"] == ""
    git("init")
    git("add", "train.py")
    git("commit", "-m", "Add it")
    clean = read_origin(None, code)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    assert (clean["job_file"], clean["requirements_digest"]) == ("", "9a3a")
    (tmp_path / "train.py").write_text("print(2)\n")
    assert read_origin(None, code) == {**clean, "dirty": True}
    assert read_origin(None, {})["source"] == ""
