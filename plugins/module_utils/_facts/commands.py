# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands and calls that may hang, with a time limit.

A process that waits for a broken device or a dead server cannot be killed. Processes abandoned here hold none of our
descriptors, so they do not block the reply to the controller.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class CommandOutput:
    """A command's output. `code` is None if the command did not end in time or could not be started."""

    def __init__(self, code: int | None, text: str, hangs: bool = False) -> None:
        self.code = code
        self.text = text
        self.hangs = hangs


class Command:
    """A command running in the background, with its stdout and stderr in one text."""

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        self.start_error = ""
        self.finished: CommandOutput | None = None
        try:
            # no AnsibleModule here: this runs on a node without Ansible; pylint: disable=ansible-bad-function
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        except OSError as error:
            self.start_error = f"{argv[0]}: {error.strerror}"

    def output(self, deadline: float) -> CommandOutput:
        """Return the output; kill the command and abandon it at the deadline (time.monotonic()).

        The output is read only once, since several facts may use it.
        """
        if self.finished is None:
            self.finished = self.wait(deadline)
        return self.finished

    def wait(self, deadline: float) -> CommandOutput:
        """Wait for the command to end; return its output."""
        if self.start_error:
            return CommandOutput(None, self.start_error)
        try:
            # even after waiting for another command, get this one's output
            raw, _nothing = self.process.communicate(timeout=max(0.5, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            return CommandOutput(None, "", hangs=True)
        return CommandOutput(self.process.returncode, raw.decode("utf-8", "replace"))


def call_in_children(calls: Mapping[str, Callable[[], Any]], timeout: float) -> dict[str, Any]:
    """Call each function in its own child process, all in parallel; return {key: its result}.

    Results are passed as JSON. A key is missing if its call did not return within `timeout` seconds.
    """
    waiting = {}
    for key, function in calls.items():
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                # a child that may never end must not keep our descriptors open
                os.dup2(writer, 0)
                os.dup2(os.open(os.devnull, os.O_RDWR), 1)
                os.dup2(1, 2)
                os.closerange(3, 256)
                os.write(0, json.dumps(function()).encode())
            finally:
                os._exit(0)
        os.close(writer)
        waiting[reader] = (key, pid)
    results: dict[str, Any] = {}
    deadline = time.monotonic() + timeout
    texts = dict.fromkeys(waiting, b"")
    while waiting:
        ready, _out, _bad = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for reader in ready:
            data = os.read(reader, 65536)
            texts[reader] += data
            if not data:
                key, pid = waiting.pop(reader)
                os.close(reader)
                os.waitpid(pid, 0)
                if texts[reader]:
                    results[key] = json.loads(texts[reader])
    for reader, (_key, pid) in waiting.items():
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
    return results
