# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath queries on the output of status.yml, runs.yml and preflight.yml."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.supervised import own_network
from tests.unit.typed import give_collection, own_environment, typed

HERE = f"{{ansible_connection: local, node_address: {own_network(4)}.%d}}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create two local nodes without runs."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        f"training: {{hosts: {{a: {HERE % 1}, b: {HERE % 2}}}, vars: {{launch_node_directory: {tmp_path}/node, "
        f"ansible_python_interpreter: {sys.executable}, node_slots: 1}}}}\n"
    )
    return tmp_path


def query(directory: Path, playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook with the output callback of a project, as in scripts that parse its standard output."""
    return subprocess.run(
        ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *arguments],
        cwd=directory,
        env={**own_environment(directory), "ANSIBLE_STDOUT_CALLBACK": "muster.training.roll"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("playbook", "expression", "expected"),
    [
        ("status", "nodes[?state=='no run'].node", ["a", "b"]),
        pytest.param("runs", "length(runs)", 0, marks=pytest.mark.thorough),
        ("preflight", "nodes[].{name:name,rank:node_rank}|[1]", {"name": "b", "rank": 1}),
    ],
)
def test_query_result_replaces_the_table(directory: Path, playbook: str, expression: str, expected: object) -> None:
    file = directory / "answer.json"
    arguments = [
        "-e",
        f"jmespath={expression}",
        "-e",
        f"{'preflight_json' if playbook == 'preflight' else 'json'}={file}",
    ]
    completed = query(directory, playbook, *arguments)
    assert json.loads(completed.stdout) == expected, completed.stdout
    assert playbook == "runs" or json.loads(file.read_text()) == expected


def test_only_the_result_of_a_query_is_printed_to_stdout(directory: Path) -> None:
    (directory / "job.yml").write_text(f"job: {{script: other.py, python: {sys.executable}}}\n")
    command = ["ansible-playbook", "muster.training.preflight", "-i", "machines.yml", "-e", "@job.yml"]
    inventory = (directory / "machines.yml").read_text()
    (directory / "machines.yml").write_text(inventory.replace("node_slots", "launch_script: train.py, node_slots"))
    assert "job.yml overrides these project settings: launch_script: train.py" in typed(directory, command).stdout
    completed = query(
        directory, "preflight", "-e", "@job.yml", "-e", "jmespath=findings[?id=='script-missing'].severity"
    )
    assert json.loads(completed.stdout) == ["error"], completed.stdout
    assert completed.returncode == 2 and "FAILED preflight on a: Check for errors" in completed.stderr


def test_invalid_query_is_refused_with_its_position(directory: Path) -> None:
    arguments = ["-e", "jmespath=nodes[?state=]"]
    completed = typed(directory, ["ansible-playbook", "muster.training.status", "-i", "machines.yml", *arguments])
    assert completed.returncode == 2
    assert "the JMESPath expression 'nodes[?state=]' is invalid at character 13, at '=]'" in completed.stdout
