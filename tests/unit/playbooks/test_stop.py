# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stop.yml with unresponsive nodes: it reports that these nodes were not stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

CLOSED = "{ansible_host: 127.0.0.1, ansible_port: 1}"  # tcpmux: nothing listens on it
HERE = "{ansible_connection: local}"
ON_THEIR_OWN = "its supervisor ends the run by itself 15 s after losing contact with the others"


@pytest.mark.parametrize(
    ("second_node", "message", "unexpected"),
    [
        (CLOSED, "No node of the run responds: if they are up, the run and its costs continue", ON_THEIR_OWN),
        (HERE, ON_THEIR_OWN, "No node of the run responds"),
    ],
)
def test_unresponsive_node_is_named_with_the_consequences(
    tmp_path: Path, second_node: str, message: str, unexpected: str
) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        f"training: {{hosts: {{a: {CLOSED}, b: {second_node}}}, vars: {{launch_node_directory: {tmp_path}/node, "
        f"ansible_python_interpreter: {sys.executable}}}}}\n"
    )
    completed = typed(
        tmp_path, ["ansible-playbook", "muster.training.stop", "-i", "machines.yml", "-e", "run_id=unanswered"]
    )
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2, completed.stdout
    assert "a is not responding, so stop.yml stopped nothing there" in output, completed.stdout
    assert message in output and unexpected not in output, completed.stdout
    assert "a unreachable did not respond a moment ago" in output, completed.stdout
    assert ("no node has a run unanswered" in output) == (second_node == HERE)
    assert ("no node could be queried" in output) == (second_node == CLOSED)
