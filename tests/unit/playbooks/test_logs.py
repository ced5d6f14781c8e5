# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""logs.yml for a run on three nodes, one of them missing from the inventory: no log is skipped silently."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

PLAN = {
    "run_id": "first",
    "world_size": 6,
    "nodes": [{"name": name, "slots": 2, "first_rank": first} for name, first in (("a", 0), ("b", 2), ("c", 4))],
}
NODE_NOT_IN_INVENTORY = (
    "rank {} of run first is on c, which is not in the group 'training' of this inventory (of this run's nodes, it "
    "has a, b): use the inventory the run was launched with, or put c back into it"
)
NO_RANK = "run first has ranks 0 to 5, not {}: correct -e rank"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory of two local nodes, and the record of a run."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        "training: {hosts: {a: {}, b: {}}, vars: {ansible_connection: local, launch_node_directory: "
        f"{tmp_path}/node, ansible_python_interpreter: {sys.executable}}}}}\n"
    )
    record = tmp_path / "runs" / "first"
    record.mkdir(parents=True)
    (record / "plan.json").write_text(json.dumps(PLAN))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("-e rank=4", 2, NODE_NOT_IN_INVENTORY.format(4)),
        ("-e rank=4 -e fetch=true", 0, "a has no run first in"),  # fetches the logs of the nodes that have the run
        ("-e rank=3", 2, "b: run first does not exist on this node"),  # node b was queried
        pytest.param("-e rank=6", 2, NO_RANK.format(6), marks=pytest.mark.thorough),
        ("-e rank=abc", 2, NO_RANK.format("abc")),
    ],
)
def test_logs_of_a_rank_are_shown_or_reported_missing(directory: Path, arguments: str, code: int, text: str) -> None:
    command = "ansible-playbook muster.training.logs -i machines.yml -e run_id=first"
    completed = typed(directory, [*command.split(), *arguments.split()])
    assert completed.returncode == code, completed.stdout
    assert text in " ".join(completed.stdout.split()), completed.stdout
