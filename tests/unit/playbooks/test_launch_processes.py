# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible starts at most one process per launch task for all nodes, and none for unused features."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.two_nodes import two_nodes
from tests.unit.typed import CHECKOUT, typed

# Tasks that may be skipped at the cost of a process: include_tasks and roles for other playbooks need them.
SKIPPED_ONCE = {
    "Replace settings of the project with those of a job file",
    "List the local code",
    "Compare the nodes' code with the local code",
    "Show how to continue",
    "Write the report",
}
pytestmark = pytest.mark.one_core


def test_unused_parts_start_no_processes(tmp_path: Path) -> None:
    two_nodes(tmp_path, 47, launch_report=False, launch_launcher="env")
    (tmp_path / "train.py").write_text("print('done')\n")
    settings = {
        "ANSIBLE_CALLBACK_PLUGINS": str(CHECKOUT / "tests" / "bench" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "launch_events",
        "MUSTER_LAUNCH_EVENTS": str(tmp_path / "events.jsonl"),
    }
    command = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", "-e", "launch_script=train.py"]
    completed = typed(tmp_path, [*command, "-e", f"launch_working_directory={tmp_path}"], **settings)
    assert completed.returncode == 0, completed.stdout
    skipped: dict[str, int] = {}
    processes: dict[str, int] = {}
    task = ""
    for line in (tmp_path / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        task = event.get("task", task)
        if event["event"] == "skipped":
            skipped[task] = skipped.get(task, 0) + 1
        if event["event"] == "process":
            processes[task] = processes.get(task, 0) + 1
    assert {name.rpartition(" : ")[2] for name in skipped} <= SKIPPED_ONCE
    assert [name for name, count in skipped.items() if count > 1] == []
    assert [name for name, count in processes.items() if count > 1] == []
