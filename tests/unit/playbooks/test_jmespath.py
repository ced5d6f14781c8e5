# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath queries on the output of status.yml, runs.yml and preflight.yml, as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.supervised import own_network
from tests.unit.typed import give_collection, typed

HERE = f"{{ansible_connection: local, node_address: {own_network(4)}.%d}}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two nodes on this machine, on which nothing has run."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        f"training: {{hosts: {{a: {HERE % 1}, b: {HERE % 2}}}, vars: {{launch_node_directory: {tmp_path}/node, "
        f"ansible_python_interpreter: {sys.executable}, node_slots: 1}}}}\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("playbook", "question", "answer"),
    [
        ("status", "nodes[?state=='no run'].node", ["a", "b"]),
        ("runs", "length(runs)", 0),
        ("preflight", "nodes[].{name:name,rank:node_rank}|[1]", {"name": "b", "rank": 1}),
    ],
)
def test_query_result_replaces_the_table(directory: Path, playbook: str, question: str, answer: object) -> None:
    file = directory / "answer.json"
    words = ["-e", f"jmespath={question}", "-e", f"{'preflight_json' if playbook == 'preflight' else 'json'}={file}"]
    done = typed(directory, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *words])
    shown = json.dumps(answer, indent=1)
    assert f"\n{shown}\n" in f"\n{done.stdout}", done.stdout
    for heading in ("last line", "no runs on these nodes", "preflight of 2 nodes"):
        assert heading not in done.stdout
    assert playbook == "runs" or json.loads(file.read_text()) == answer


def test_invalid_query_is_refused_with_its_position(directory: Path) -> None:
    words = ["-e", "jmespath=nodes[?state=]"]
    done = typed(directory, ["ansible-playbook", "muster.training.status", "-i", "machines.yml", *words])
    assert done.returncode == 2
    assert "the JMESPath expression 'nodes[?state=]' is invalid at character 13, at '=]'" in done.stdout
