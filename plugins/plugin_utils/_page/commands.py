# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the playbook for a button: one at a time for each run, with the inventory and variables of this command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import (
    adapt_commands,
    sibling_playbook,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import STARTED_BY
from ansible_collections.muster.training.plugins.plugin_utils._page.output_tail import OutputTail, visible_line

COMMANDS = {
    "save": "Ask all ranks to save now",
    "stacks": "Show which source line each rank is executing",
    "stop": "Stop the run on all nodes",
}
MAX_LINE_BYTES = 65536
Spawn = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]


def playbook_argv(argv: Sequence[str], playbooks: Sequence[str], name: str, run_id: str) -> list[str]:
    """Return the command for running another playbook of this collection on a run, with the same options.

    argv: arguments of this ansible-playbook. playbooks: those that it runs.
    """
    path = sibling_playbook(str(playbooks[0]), name)
    options = [path if argument == playbooks[0] else str(argument) for argument in argv]
    # later variables take precedence, and launch_run_id takes precedence over run_id
    return [ansible_playbook(), *options, "-e", f"launch_run_id={run_id} run_id={run_id} {STARTED_BY}=page"]


def ansible_playbook() -> str:
    """Return the path of ansible-playbook in this environment."""
    directory = os.path.dirname(os.path.abspath(sys.argv[0]))
    return shutil.which("ansible-playbook", path=directory) or "ansible-playbook"


def spawn(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command that continues if the page is closed: once a stop has begun, it must reach all nodes."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        start_new_session=True,
    )


class RunningCommand:
    """A command for a run, and the end of its output."""

    def __init__(self, name: str, typed: str) -> None:
        self.name = name
        self.typed = typed
        self.tail = OutputTail()
        self.exit_code: int | None = None
        self.lock = threading.Lock()

    def read(self, process: subprocess.Popen[bytes]) -> None:
        """Collect the output until the command ends."""
        while process.stdout and (line := process.stdout.readline(MAX_LINE_BYTES)):
            with self.lock:
                self.tail.add([visible_line(line.decode("utf-8", "replace").rstrip("\n"))])
        self.exit_code = process.wait()

    def describe(self) -> dict[str, Any]:
        """Return the state of the command for the page."""
        with self.lock:
            lines = self.tail.after(0)["lines"]
        return {"name": self.name, "typed": self.typed, "exit_code": self.exit_code, "lines": lines}


class Commands:
    """The commands started by the page's buttons, the newest for each run."""

    def __init__(self, argv: Sequence[str], playbooks: Sequence[str], obstacle: str, start: Spawn = spawn) -> None:
        self.argv, self.playbooks = argv, playbooks
        self.obstacle = obstacle  # reason why no command can be run, such as a password that Ansible would prompt for
        self.start = start
        self.running: dict[str, RunningCommand] = {}
        self.lock = threading.Lock()

    def run(self, name: str, run_id: str) -> str:
        """Start a command; return why it could not be started, or "" if it was."""
        typed = adapt_commands(f"ansible-playbook {name}.yml -e run_id={run_id}")
        with self.lock:
            current = self.running.get(run_id)
            if self.obstacle:
                return f"{self.obstacle}; or type: {typed}"
            if current is not None and current.exit_code is None:
                return f"{current.name} is still running: wait until it ends"
            command = RunningCommand(name, typed)
            try:
                process = self.start(playbook_argv(self.argv, self.playbooks, name, run_id))
            except OSError as error:
                return f"ansible-playbook cannot be started: {error.strerror}"
            self.running[run_id] = command
        threading.Thread(target=command.read, args=(process,), daemon=True).start()
        return ""

    def describe(self, run_id: str) -> Mapping[str, Any] | None:
        """Return the newest command of a run, or None if there is none."""
        command = self.running.get(run_id)
        return command.describe() if command is not None else None
