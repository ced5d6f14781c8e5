# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook supports custom names of the run, the group and the records directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.typed import CHECKOUT, give_collection, typed

PLAN = {"run_id": "of-own-names", "world_size": 1, "nodes": [{"name": "a", "slots": 1, "first_rank": 0}]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory with a custom group and directory, and the record of a run."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        "mine: {hosts: {a: {}}, vars: {ansible_connection: local, launch_runs_directory: records, "
        f"launch_node_directory: {tmp_path}/node, ansible_python_interpreter: {sys.executable}}}}}\n"
    )
    record = tmp_path / "records" / "of-own-names"
    record.mkdir(parents=True)
    (record / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("playbook", "expected_text"),
    [
        ("status", "no node has a run of-own-names"),
        pytest.param("stop", "no node has a run of-own-names", marks=pytest.mark.thorough),
        ("logs", "run of-own-names does not exist on this node"),
    ],
)
@pytest.mark.parametrize("name", [pytest.param("run_id", marks=pytest.mark.thorough), "launch_run_id"])
def test_playbooks_accept_run_name_and_group_from_any_directory(
    directory: Path, playbook: str, expected_text: str, name: str
) -> None:
    command = (
        f"ansible-playbook muster.training.{playbook} -i ../machines.yml -e launch_group=mine -e {name}=of-own-names"
    )
    completed = typed(directory, ["sh", "-c", f"cd elsewhere && exec {command}"])
    assert expected_text in " ".join(completed.stdout.split()), completed.stdout


OTHER_TASKS = {
    "plan.yml": 2,
    "allocate.yml": 1,
    "page.yml": 1,
    "join.yml": 1,
}  # tasks of other plugins that receive the group


def test_launch_role_passes_its_group_to_each_record_task() -> None:
    for path in sorted((CHECKOUT / "roles" / "launch" / "tasks").glob("*.yml")):
        text = path.read_text()
        touching = sum(
            text.count(f"muster.training.{item}:") for item in ("run_record", "run_report", "run_repeat", "fit")
        )
        assert touching == text.count(' group: "{{ launch_group }}"\n') - OTHER_TASKS.get(path.name, 0), path
        assert isinstance(yaml.safe_load(text), list)
