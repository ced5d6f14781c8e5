"""The rule for subjects of commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import commit_subjects

pytestmark = pytest.mark.one_core


@pytest.mark.parametrize("subject", ["Add a check for swap", "Fix ranks of elastic runs (#12)", "Move x" + " y" * 33])
def test_imperative_subjects_are_accepted(subject: str) -> None:
    assert commit_subjects.problem(subject) is None


@pytest.mark.parametrize(
    "subject, reason",
    [
        ("Settings are in tables now", "starts with 'Settings'"),
        ("Added a check", "starts with 'Added'"),
        ("add a check", "starts with 'add'"),
        ("Add a check.", "ends with a full stop"),
        ("Add " + "x" * 69, "has 73 characters"),
    ],
)
def test_other_subjects_are_refused_with_a_reason(subject: str, reason: str) -> None:
    assert reason in str(commit_subjects.problem(subject))


def test_only_commits_after_the_baseline_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*args: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        completed = subprocess.run(
            ["git", *identity, "-C", str(tmp_path), *args], check=True, capture_output=True, text=True
        )
        return completed.stdout.strip()

    git("init", "-q")
    for subject in ("old style", "another old one", "Add a new one", "Fix it"):
        git("commit", "-q", "--allow-empty", "-m", subject)
    monkeypatch.setattr(commit_subjects, "BASELINE", git("rev-parse", "HEAD~2"))
    assert [subject for _commit, subject in commit_subjects.new_commits(tmp_path)] == ["Fix it", "Add a new one"]
    monkeypatch.setattr(commit_subjects, "BASELINE", "0" * 40)
    assert [subject for _commit, subject in commit_subjects.new_commits(tmp_path)] == ["Fix it"]
