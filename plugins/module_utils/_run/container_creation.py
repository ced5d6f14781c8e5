# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove a node's container, even if the engine finishes its creation after the client that requested it was killed.

While a client waits for the creation, the run directory has a marker. An engine with a daemon, such as docker, may then
have no container of that name yet, and create it later. So the removal is repeated until the engine has removed it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import open_private
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import read_plan
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CONTAINER_RETRY_INTERVAL

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

# This runs on a node without an AnsibleModule, so run_command is not available. pylint: disable=ansible-bad-function

OPTION = "--remove-container"  # command-line option of supervisor.py
# exists from just before a client is started until it has the container's ID or has ended
MARKER = "container.creating"
ID_FILE = "container.id"  # written by the client once the engine has created the container
# A container engine's message if the container is being removed, or if it has already been removed.
REMOVING = re.compile(r"removal of container .* is already in progress", re.I)
ALREADY_REMOVED = re.compile(rf"no such container|no container with|{REMOVING.pattern}", re.I)


class ContainerCreation:
    """Tracks whether the engine may still be creating this node's container."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.is_active = False

    def begin(self, prefix: list[str]) -> list[str]:
        """Note that a client is about to be started; return its command, extended by the file for the container's ID.

        prefix: the engine's command line, or [] without a container. Raise OSError.
        """
        if not prefix:
            return prefix
        path = os.path.join(self.directory, ID_FILE)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # engines refuse to overwrite an existing file
        with open(os.path.join(self.directory, MARKER), "ab", opener=open_private):
            self.is_active = True
        return [*prefix[:2], f"--cidfile={path}", *prefix[2:]]

    def step(self, code: int | None) -> None:
        """Remove the marker once the container exists or its client has exited by itself. code: the client's exit
        code.
        """
        ended_by_itself = code is not None and code >= 0
        if self.is_active and (ended_by_itself or has_id(self.directory)):
            self.is_active = False
            remove_marker(self.directory)


def has_id(directory: str) -> bool:
    """Return whether a client has written the ID of its container."""
    return file_size(os.path.join(directory, ID_FILE)) > 0


def remove_marker(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(directory, MARKER))


def is_creating(directory: str) -> bool:
    """Return whether a client was killed, or is still waiting, before the engine has reported its container."""
    return os.path.lexists(os.path.join(directory, MARKER)) and not has_id(directory)


def removal_command(plan: Mapping[str, Any], directory: str, seconds: float) -> list[str]:
    """Return the command that removes this node's container.

    seconds: how long it is repeated while the engine may still be creating the container.
    """
    if not is_creating(directory):
        return list(plan["remove"])
    program = os.path.join(directory, "supervisor.py")
    return [sys.executable, "-I", "-S", program, OPTION, directory, f"{seconds:g}"]


def unit_removal(plan: Mapping[str, Any], directory: str, python: str, seconds: float) -> list[str]:
    """Return the same command for a unit, which decides when it runs. `$` is doubled for systemd."""
    creating = f'[ -e "$$0/{MARKER}" ] && [ ! -s "$$0/{ID_FILE}" ]'
    repeated = f'"$$1" -I -S "$$0/supervisor.py" {OPTION} "$$0" {seconds:g} && exit'
    script = f'{creating} && {repeated}; shift; exec "$$@"'
    return ["/bin/sh", "-c", script, directory, python, "/usr/bin/env", *plan["remove"]]


def main(arguments: list[str]) -> int:
    """Remove a run directory's container once the engine has created it; return the engine's last exit code.

    arguments: the run directory, and the seconds after which an engine that has no such container counts as never
    having received the request to create it.
    """
    directory, deadline = arguments[0], time.monotonic() + float(arguments[1])
    command = (read_plan(directory) or {}).get("remove") or []
    if not command:
        return 1
    while True:
        completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        # engines print what they have removed; some also exit with 0 if no such container exists
        is_removed = completed.stdout.strip() or REMOVING.search(completed.stderr.decode("utf-8", "replace"))
        if is_removed:
            remove_marker(directory)
        if is_removed or time.monotonic() >= deadline:
            break
        time.sleep(CONTAINER_RETRY_INTERVAL)
    os.write(2, completed.stdout + completed.stderr)
    return completed.returncode
