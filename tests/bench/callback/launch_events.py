# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: launch_events
type: aggregate
short_description: When each task of a play starts and ends
description: Writes a JSON line for each event into the file that MUSTER_LAUNCH_EVENTS names, for bench_phases.py.
"""


class CallbackModule(CallbackBase):
    """Records the time, and the CPU time of this process and its children, with each event."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "launch_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Create the file."""
        super().__init__(*arguments, **options)
        self.path = Path(os.environ["MUSTER_LAUNCH_EVENTS"])
        self.path.write_text("")

    def write(self, event: str, **fields: str) -> None:
        """Write an event."""
        used = os.times()
        cpu = used.user + used.system + used.children_user + used.children_system
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"event": event, "time": time.time(), "cpu": cpu, **fields}) + "\n")

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Note that Ansible has started."""
        self.write("playbook")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Note the start of a task."""
        self.write("task", task=task.get_name(), action=task.action)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Note that a process for a node is starting."""
        self.write("process")

    def v2_runner_on_ok(self, result: Any) -> None:
        """Note a result."""
        self.write("result")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Note that a task was skipped on a node."""
        self.write("skipped")

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Note that tasks were included, which is the result of that task."""
        self.write("result")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Note the end of the play."""
        self.write("end")
