# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each problem is printed once, with the appropriate command."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.unit.supervised import own_network
from tests.unit.typed import give_collection, typed

INVENTORY = f"""
training:
  hosts: {{a: {{node_address: {own_network(6)}.1}}}}
  vars:
    ansible_connection: local
    ansible_python_interpreter: {sys.executable}
    launch_python: {sys.executable}
    launch_script: nowhere/train.py
"""
OPTIONS = "-e launch_working_directory=$PWD -e launch_script=nowhere/train.py"
COMMAND = f"ansible-playbook muster.training.launch -i machines.yml {OPTIONS}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create an empty home directory and the collection, with this machine as the only node."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(INVENTORY)
    return tmp_path


@pytest.mark.parametrize(
    ("playbook", "result_format"),
    [
        ("launch", "yaml"),
        ("preflight", "json"),
        pytest.param("launch", "json", marks=pytest.mark.thorough),
        pytest.param("preflight", "yaml", marks=pytest.mark.thorough),
    ],
)
def test_finding_is_printed_once(directory: Path, playbook: str, result_format: str) -> None:
    completed = typed(
        directory,
        ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml"],
        ANSIBLE_CALLBACK_RESULT_FORMAT=result_format,
    )
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2, completed.stdout
    assert output.count("/nowhere/train.py is missing or not readable") == 1, completed.stdout
    assert output.count("the script at the same path on each node") == 1, completed.stdout
    assert output.count(COMMAND) == 1, completed.stdout


def test_variable_that_is_not_exported_is_reported_once(directory: Path) -> None:
    arguments = ["-i", "machines.yml", "-e", "launch_pass_environment=HF_TOKEN,PATH"]
    completed = typed(directory, ["ansible-playbook", "muster.training.launch", *arguments])
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2 and "Origin:" not in output and "lookup" not in output, completed.stdout
    message = (
        "launch_pass_environment contains variables that are not set in the environment of ansible-playbook: HF_TOKEN; "
        "export"
    )
    assert output.count(message) == 1, completed.stdout


def test_refused_run_is_reported_without_playbook_source(directory: Path) -> None:
    completed = typed(directory, ["ansible-playbook", "muster.training.launch", "-i", "machines.yml"])
    # the machine may have further problems: torch may be missing, or another test may use a port
    refusals = re.findall(r"nothing was started: ([a-z, -]+) on a\b", completed.stdout)
    assert len(refusals) == 1 and "script-missing" in refusals[0].split(", "), completed.stdout
    assert "Origin:" not in completed.stdout and "[ERROR]" not in completed.stdout
