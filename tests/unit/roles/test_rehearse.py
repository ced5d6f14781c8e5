# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role rehearse reads a checkpoint as the user of the job, wherever that user is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import ChainableUndefined, Environment

from tests.unit.typed import CHECKOUT, give_collection, typed


@pytest.mark.parametrize(
    ("node_variables", "variables", "user"),
    [
        ({}, {}, ""),
        ({}, {"job": {"user": "ann"}}, "ann"),
        ({"launch_user": "bob"}, {"job": {"user": "ann"}}, "bob"),
        ({"launch_user": "bob"}, {}, "bob"),
    ],
)
def test_a_checkpoint_is_read_as_the_user_of_the_job(node_variables: Any, variables: dict[str, Any], user: str) -> None:
    tasks = yaml.safe_load((CHECKOUT / "roles" / "rehearse" / "tasks" / "main.yml").read_text())
    read_tasks = [task for task in tasks if "delegate_to" in task]
    all_variables = {**variables, "hostvars": {"gpu0": node_variables}, "__rehearse_played": {"node": "gpu0"}}
    templates = Environment(undefined=ChainableUndefined, autoescape=True)
    for task in read_tasks:
        (name, expression), *_none = task["vars"].items()
        assert templates.from_string(expression).render(all_variables) == user
        assert task["become_user"] == f"{{{{ {name} | default('root', true) }}}}"
    assert len(read_tasks) == 2


def test_job_without_a_checkpoint_is_still_judged(tmp_path: Path) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text("training: {hosts: {gpu0: {node_address: 127.0.4.1}}}\n")
    job = '{"launch_script": "train.py", "rehearse_args": ["{steps}"]}'
    argv = ["ansible-playbook", "muster.training.rehearse", "-i", "machines.yml", "-e", job]
    completed = typed(tmp_path, [*argv, "--check"])  # launches nothing, so no node has a checkpoint
    assert completed.returncode == 0 and "skipped=2" in completed.stdout, completed.stdout
