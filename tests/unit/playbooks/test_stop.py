# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stop.yml when nodes are not responding: it does not claim to have stopped what it could not reach."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

CLOSED = "{ansible_host: 127.0.0.1, ansible_port: 1}"  # tcpmux: nothing listens on it
HERE = "{ansible_connection: local}"
ON_THEIR_OWN = "its supervisor ends the run by itself 15 s after losing contact with the others"


@pytest.mark.parametrize(
    ("other", "message", "unsaid"),
    [
        (CLOSED, "No node of the run responds: if they are up, the run and its costs continue", ON_THEIR_OWN),
        (HERE, ON_THEIR_OWN, "No node of the run responds"),
    ],
)
def test_unresponsive_node_is_named_with_the_consequences(
    tmp_path: Path, other: str, message: str, unsaid: str
) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        f"training: {{hosts: {{a: {CLOSED}, b: {other}}}, vars: {{launch_node_directory: {tmp_path}/node, "
        f"ansible_python_interpreter: {sys.executable}}}}}\n"
    )
    done = typed(
        tmp_path, ["ansible-playbook", "muster.training.stop", "-i", "machines.yml", "-e", "run_id=unanswered"]
    )
    output = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout
    assert "a is not responding, so stop.yml stopped nothing there" in output, done.stdout
    assert message in output and unsaid not in output, done.stdout
    assert "a unreachable did not respond a moment ago" in output, done.stdout
    assert ("no node has a run unanswered" in output) == (other == HERE)
    assert ("no node could be queried" in output) == (other == CLOSED)
