"""Which answers of grep are failures when cloud-init's user data are looked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TASKS = Path(__file__).resolve().parents[3] / "roles" / "hosts_file" / "tasks" / "cloud_init.yml"


@pytest.fixture
def task() -> dict[str, Any]:
    """The task that looks for them."""
    found: dict[str, Any] = DataLoader().load_from_file(str(TASKS), trusted_as_template=True)[0]
    return found


def fails(task: dict[str, Any], rc: int, stderr: str) -> bool:
    """Whether the task fails where grep answers so."""
    answer = {"rc": rc, "stderr": stderr, "stderr_lines": stderr.splitlines()}
    templar = Templar(loader=DataLoader(), variables={task["register"]: answer})
    return bool(templar.template(trust_as_template("{{ " + task["failed_when"] + " }}")))


def grep(task: dict[str, Any], directory: Path) -> tuple[bool, str]:
    """Run the task's command on another directory; return whether the task fails, and what it found."""
    *words, asked = task["ansible.builtin.command"]["argv"]
    assert asked == "/var/lib/cloud/instance/"
    environment = {**os.environ, **task.get("environment", {})}
    done = subprocess.run([*words, f"{directory}/"], env=environment, capture_output=True, text=True, check=False)
    return fails(task, done.returncode, done.stderr.rstrip("\n")), done.stdout


def test_what_is_not_there_is_no_failure(task: dict[str, Any], tmp_path: Path) -> None:
    assert grep(task, tmp_path / "none") == (False, "")
    assert grep(task, tmp_path) == (False, "")
    (tmp_path / "instance").symlink_to("instances/gone")
    assert grep(task, tmp_path / "instance") == (False, "")
    (tmp_path / "cloud-config.txt").write_text("manage_etc_hosts: true\n")
    assert grep(task, tmp_path) == (False, "manage_etc_hosts: true\n")
    assert not fails(task, 2, "grep: a: No such file or directory\ngrep: b c: No such file or directory")


def test_what_cannot_be_read_is_one(task: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "instance").touch()
    assert grep(task, tmp_path / "instance") == (True, "")
    assert fails(task, 2, "grep: a: No such file or directory\ngrep: b: Permission denied")
    assert fails(task, 2, "grep: b: Permission denied\ngrep: a: No such file or directory")
    assert fails(task, 2, ""), "grep itself is not there"
