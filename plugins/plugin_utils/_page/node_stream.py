# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates on a run that a process on a node sends as they occur. Ansible returns a command's output only at its end."""

from __future__ import annotations

import contextlib
import queue
import shlex
import subprocess
import threading
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import REPLY_MARK, parse_reply

MAX_LINE = 32 * 2**20  # bytes; more than the output in a reply takes with its control characters escaped
END_TIMEOUT = 5.0  # seconds for the process to exit


def stream_argv(action: ActionBase, command: str) -> list[Any]:
    """Return the command that Ansible would run locally to run a command on the action's node.

    Return [] for connections and logins that Ansible would have to answer, such as with a password.
    """
    connection, context = action._connection, action._play_context
    if connection.become is not None:
        if connection.become.get_option("become_pass"):
            return []
        command = connection.become.build_become_command(command, connection._shell)
    command = f"/bin/sh -c {shlex.quote(command)}"
    if connection.transport == "local":
        return ["/bin/sh", "-c", command]
    if connection.transport != "ssh" or connection.get_option("password") or context.password:
        return []
    host = connection.get_option("host") or context.remote_addr
    argv: list[Any] = connection._build_command(connection.get_option("ssh_executable"), "ssh", host, command)
    return argv


class NodeStream:
    """A process that writes updates on a run, one per line."""

    def __init__(self, argv: list[Any], data: bytes) -> None:
        """Start the process with the given standard input. Raise OSError."""
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.replies: queue.Queue[dict[str, Any] | None] = queue.Queue(4)  # a slow reader slows the node down
        self.is_closed = False
        threading.Thread(target=self.read, args=(data,), daemon=True).start()

    def read(self, data: bytes) -> None:
        """Send the input, then read replies until the process ends."""
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:  # never: both are pipes
            return
        with contextlib.suppress(OSError, ValueError):
            stdin.write(data)
            stdin.close()
            while line := stdout.readline(MAX_LINE):
                text = line.decode("utf-8", "replace")
                reply = parse_reply(text[len(REPLY_MARK) :]) if text.startswith(REPLY_MARK) else None
                if reply is not None:
                    self.put(reply)
        self.put(None)

    def put(self, reply: dict[str, Any] | None) -> None:
        """Pass on a reply, or None if there are no more."""
        while not self.is_closed:
            with contextlib.suppress(queue.Full):
                self.replies.put(reply, timeout=1.0)
                return

    def next(self, timeout: float) -> dict[str, Any] | None:
        """Return the next update, or None if none arrives within `timeout` seconds or there are no more."""
        try:
            return self.replies.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the process; the process on the node ends when it writes its next line."""
        self.is_closed = True
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT)
        with contextlib.suppress(queue.Full):
            self.replies.put_nowait(None)
