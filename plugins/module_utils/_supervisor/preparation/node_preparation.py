# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's part in preparing an attempt: the child processes that check it and copy checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

from ansible_collections.muster.training.plugins.module_utils._checkpoints.transfer import transfer_key
from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.processes import signal_all, start_shielded
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    COPY_TIMEOUT,
    GPU_FREE_TIMEOUT,
    NODE_CHECK_TIMEOUT,
    SERVE_TIMEOUT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

CHECK, SERVE, FETCH = "check", "serve", "fetch"  # kinds of request from rank 0
# supervisor.py's command-line options
OPTIONS = {CHECK: "--check-node", SERVE: "--serve-checkpoint", FETCH: "--fetch-checkpoint"}
TIMEOUTS = {CHECK: GPU_FREE_TIMEOUT + NODE_CHECK_TIMEOUT, SERVE: SERVE_TIMEOUT, FETCH: COPY_TIMEOUT}
MAX_OUTPUT = 2**20  # number of bytes that a child writes
MAX_REQUEST = 48 * 1024  # characters


class Task:
    """A request from rank 0 that a child process carries out."""

    def __init__(self, request: Data, process: subprocess.Popen[bytes] | None, deadline: float) -> None:
        self.request = request
        self.process = process
        self.deadline = deadline
        self.buffer = b""
        self.replied = False

    @property
    def kind(self) -> str:
        return str(self.request["kind"])

    def read(self) -> list[Data]:
        """Return the complete lines that the child process has written since the last call."""
        if self.process is None or self.process.stdout is None:
            return []
        with contextlib.suppress(OSError, ValueError):
            while len(self.buffer) < MAX_OUTPUT:
                data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    break
                self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        return [message for message in map(parse_line, lines) if message is not None]

    def close(self) -> None:
        """End the child process and close its pipes."""
        if self.process is not None:
            signal_all([self.process.pid], 9)
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def parse_line(line: bytes) -> Data | None:
    """Return the JSON object in a line, or None if there is none."""
    try:
        value: Any = parse_json(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class NodePreparation:
    """The requests from rank 0 that this node is currently handling."""

    def __init__(self, journal: Journal, plan: Plan, token: str) -> None:
        self.journal = journal
        self.plan = plan
        self.token = token
        self.tasks: list[Task] = []

    def pids(self) -> list[int]:
        """Return the pids of the processes for which the end of the job does not wait."""
        return [task.process.pid for task in self.tasks if task.process is not None]

    def begin(self, request: Any, now: float) -> None:
        """Start a task that rank 0 requested, in place of any earlier task of the same kind.

        request: kind, number of the attempt and, for a copy, the checkpoint's name, sources and parts.
        """
        kind = request.get("kind") if isinstance(request, dict) else None
        if not isinstance(kind, str) or kind not in OPTIONS or len(json.dumps(request)) > MAX_REQUEST:
            return
        for task in [task for task in self.tasks if task.kind == kind]:
            self.tasks.remove(task)
            task.close()
        command = [sys.executable, "-I", "-S", self.journal.path("supervisor.py"), OPTIONS[kind]]
        process = start_shielded([*command, self.journal.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tasks.append(Task(request, process, now + TIMEOUTS[kind]))
        if process is not None and process.stdin is not None and process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(self.child_request(request)).encode() + b"\n")
                process.stdin.flush()

    def child_request(self, request: Data) -> Data:
        """Return the request for the child process."""
        if request["kind"] == CHECK:
            return {"list_only": request.get("list_only") is True}
        key = transfer_key(self.token, self.plan["run_id"], int(request.get("number") or 0))
        fields = {name: request.get(name) for name in ("name", "sources", "parts")}
        return {**fields, "key": key, "address": self.plan["node"]["address"]}

    def step(self, now: float, ended: dict[int, int]) -> list[Data]:
        """Return replies for rank 0; ended: wait statuses of newly reaped processes, by pid."""
        replies = []
        for task in list(self.tasks):
            header = {"kind": task.kind, "number": task.request.get("number")}
            for message in task.read():
                task.replied = task.replied or "checkpoint" not in message
                replies.append({**message, **header})
            gone = task.process is None or task.process.pid in ended
            if not task.replied and (gone or now > task.deadline):
                replies.append({**failure(task.kind, gone), **header})
                task.replied = True
            if gone or (task.replied and task.kind != SERVE):
                self.tasks.remove(task)
                task.close()
        return replies

    def close(self) -> None:
        """End all child processes."""
        for task in self.tasks:
            task.close()
        self.tasks = []


def failure(kind: str, gone: bool) -> Data:
    """Return the reply on behalf of a child process that has not replied; gone: whether it has ended."""
    what = "ended without a result" if gone else f"did not finish within {TIMEOUTS[kind]:g} s"
    if kind == CHECK:
        return {"problems": [f"its checks {what}"], "store": ""}
    return {"port": 0, "size": 0, "error": f"the copy {what}"}
