# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role rehearse reads a checkpoint as the user of the job, from any source of that setting."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.muster.training.plugins.action.rehearse import user_of_job
from tests.unit.typed import CHECKOUT, give_collection, typed


@pytest.mark.parametrize(
    ("node_variables", "job", "extra_vars", "user"),
    [
        ({}, None, {}, ""),
        ({}, {"user": "ann"}, {}, "ann"),
        ({"launch_user": "bob"}, {"user": "ann"}, {}, "ann"),
        ({"launch_user": "bob"}, {"script": "train.py"}, {}, "bob"),
        ({"launch_user": "eve"}, {"user": "ann"}, {"launch_user": "eve"}, "eve"),
    ],
)
def test_checkpoint_is_read_as_the_user_of_the_launches(
    node_variables: dict[str, str], job: dict[str, str] | None, extra_vars: dict[str, str], user: str
) -> None:
    assert user_of_job(extra_vars, job, node_variables) == user
    tasks = yaml.safe_load((CHECKOUT / "roles" / "rehearse" / "tasks" / "main.yml").read_text())
    read_tasks = [task for task in tasks if "delegate_to" in task]
    for task in read_tasks:
        assert task["become"] == "{{ __rehearse_played.user | length > 0 }}"
        assert task["become_user"] == "{{ __rehearse_played.user | default('root', true) }}"
    assert len(read_tasks) == 2


def test_job_without_a_checkpoint_is_still_judged(tmp_path: Path) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text("training: {hosts: {gpu0: {node_address: 127.0.4.1}}}\n")
    job = '{"launch_script": "train.py", "rehearse_args": ["{steps}"]}'
    argv = ["ansible-playbook", "muster.training.rehearse", "-i", "machines.yml", "-e", job]
    completed = typed(tmp_path, [*argv, "--check"])  # launches nothing, so no node has a checkpoint
    assert completed.returncode == 0 and "skipped=2" in completed.stdout, completed.stdout
