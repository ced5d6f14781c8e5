# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role refuses an invalid source before it contacts a node, even when included by other plays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core


CASES: list[tuple[dict[str, str], str]] = [
    (
        {"code_source": "{0}/nowhere"},
        "code_source is '{0}/nowhere', but {0}/nowhere does not exist on this machine. Set it to the directory to copy",
    ),
    (
        {"code_source": "train.py"},
        "code_source is 'train.py', but {0}/train.py is a file. Set it to the directory to copy.",
    ),
    (
        {"code_source": "{0}", "code_repository": "https://127.0.0.1/a.git"},
        "code_source is '{0}', and code_repository is 'https://127.0.0.1/a.git'. Set exactly one of them, a directory",
    ),
]


def test_source_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    give_collection(tmp_path)
    (tmp_path / "train.py").touch()
    role = {"ansible.builtin.include_role": {"name": "muster.training.code"}}
    rescue_task = {"ansible.builtin.debug": {"msg": "told"}}
    tasks = [
        {
            "block": [role],
            "vars": {name: value.format(tmp_path) for name, value in variables.items()},
            "rescue": [rescue_task],
        }
        for variables, _message in CASES
    ]
    play = {"hosts": "all", "gather_facts": False, "vars": {"code_group": "all"}, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"a": {"ansible_port": 1}}}}))
    completed = typed(tmp_path, ["ansible-playbook", "play.yml", "-i", "hosts.yml"])
    output = " ".join(completed.stdout.split())
    assert [message for _variables, message in CASES if message.format(tmp_path) not in output] == [], output
    assert "unreachable=0" in output and f"rescued={len(CASES)}" in output, output
