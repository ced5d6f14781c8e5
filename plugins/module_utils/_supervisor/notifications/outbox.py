# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notify people of a run's events from rank 0's node: one child process at a time, for which no run waits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.processes import signal_all, start_shielded
from ansible_collections.muster.training.plugins.module_utils._run.secrets import NOTIFY
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import NOTIFICATION_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import (
    EVENTS,
    KINDS,
    end_message,
    lost_message,
    message,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan, Result
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

OPTION = "--notify"  # command-line option of supervisor.py
MAX_TARGETS = 10
MAX_URL = 2000
MAX_MESSAGES = 50  # number of messages about a run, not counting the last; a job may cause events again and again


def parse_targets(value: object) -> list[Data]:
    """Return the targets in the file of the run directory, each with url, kind and events."""
    targets = []
    for target in value if isinstance(value, list) else []:
        valid = isinstance(target, dict) and isinstance(target.get("url"), str) and len(target["url"]) <= MAX_URL
        if valid and target.get("kind") in (*KINDS, "smtp") and isinstance(target.get("events"), list):
            targets.append({"url": target["url"], "kind": target["kind"], "events": target["events"]})
    return targets[:MAX_TARGETS]


def read_targets(path: str) -> object:
    """Return the file's content, or None if it is missing; like the token, it may be a link to a file in memory."""
    try:
        with open(path, encoding="utf-8") as stream:
            return parse_json(stream.read())
    except (OSError, ValueError):
        return None


class Outbox:
    """The messages that are waiting to be sent."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.plan = plan
        self.program = journal.path("supervisor.py")
        self.targets = parse_targets(read_targets(journal.path(NOTIFY)))
        self.waiting: list[Data] = []
        self.sent = 0
        self.child: int | None = None
        self.killed_at = 0.0  # time at which a child that does not exit by itself is killed
        if self.targets:
            journal.on_event = self.on_event

    def on_event(self, kind: str, text: str) -> None:
        """Queue a message if an event of this kind triggers one."""
        if kind in EVENTS and self.sent < MAX_MESSAGES:
            self.sent += 1
            self.waiting.append(message(self.plan, EVENTS[kind], text))

    def end(self, result: Result | None, loss: str, seconds: float) -> None:
        """Queue the message about the end of the run.

        result: as the node that leads the run has written it. loss: why that node is lost, if this one reports it.
        seconds: since the start of the run.
        """
        if self.targets and result is not None:
            self.waiting.append(end_message(self.plan, result))
        elif self.targets and loss:
            self.waiting.append(lost_message(self.plan, loss, seconds))

    def pids(self) -> list[int]:
        """Return the pids of the processes for which the end of the job does not wait."""
        return [self.child] if self.child is not None else []

    def is_empty(self) -> bool:
        """Return whether all messages were sent."""
        return self.child is None and not self.waiting

    def step(self, now: float, ended: dict[int, int]) -> None:
        """Continue sending; ended: wait statuses just reaped, by pid."""
        if self.child in ended:
            self.child = None
        if self.child is not None and now >= self.killed_at:
            signal_all([self.child], signal.SIGKILL)
        while self.child is None and self.waiting:
            self.start(self.waiting.pop(0), now)

    def start(self, content: Data, now: float) -> None:
        """Start the child that sends a message; it receives the URLs on its standard input."""
        targets = [
            {"url": target["url"], "kind": target["kind"]}
            for target in self.targets
            if content["event"] in target["events"]
        ]
        if not targets:
            return
        self.killed_at = now + 2 * NOTIFICATION_TIMEOUT
        command = [sys.executable, "-I", "-S", self.program, OPTION]
        process = start_shielded(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        if process is None:
            return
        self.child = process.pid
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                os.write(process.stdin.fileno(), json.dumps({"targets": targets, "message": content}).encode())
        if process.stdin is not None:
            process.stdin.close()
