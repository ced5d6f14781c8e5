# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Without systemd: end the processes that a supervisor leaves behind when it is killed or hangs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json, remove_tree
from ansible_collections.muster.training.plugins.module_utils._run.container_creation import removal_command
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    become_subreaper,
    descendants,
    exit_code,
    reap,
    signal_all,
    start_in_background,
)
from ansible_collections.muster.training.plugins.module_utils._run.secrets import NOTIFY, remove_secrets
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CONTAINER_CREATION_TIMEOUT,
    CONTAINER_REMOVAL_TIMEOUT,
    HANG_GRACE_PERIOD,
    KILL_TIMEOUT,
    NOTIFICATION_END_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.heartbeat_file import GUARD_PIPE

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data


def guard(arguments: list[str]) -> int:
    """Without systemd: run the supervisor as a child, and end its remaining processes if it is killed or hangs.

    What blocks a hung supervisor may block the guard too, so end the job before touching any file.
    """
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the supervisor reacts to a stop request
    directory = arguments[1]
    plan: Data = read_json(os.path.join(directory, "plan.json")) or {}
    silence = (plan.get("timeouts") or {}).get("silence", 10.0)
    child, pipe = start_guarded(arguments)
    status = wait_for_end(child, pipe, silence + HANG_GRACE_PERIOD)
    deadline = time.monotonic() + KILL_TIMEOUT
    while time.monotonic() < deadline:
        remaining = descendants(os.getpid())
        if not remaining:
            break
        signal_all(remaining, signal.SIGKILL)
        reap()
        time.sleep(0.02)
    if status is None and plan.get("remove"):
        remove_container(plan["remove"], os.devnull, CONTAINER_REMOVAL_TIMEOUT)
    report_death(directory, status)
    remove_secrets(directory)
    if plan.get("remove"):
        remove_new_container(plan, directory, status is None)
    if plan.get("temporary_directory"):
        remove_temporary(plan["temporary_directory"])
    return 1 if status is None else min(abs(exit_code(status)), 255)


def remove_temporary(directory: str) -> None:
    """Remove the job's temporary directory, as far as possible: mounts and other users' files stay."""
    with contextlib.suppress(OSError):
        names = os.listdir(directory)
        for name in names:
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):
                if os.path.isdir(path) and not os.path.islink(path):
                    remove_tree(path)
                else:
                    os.unlink(path)
        os.rmdir(directory)


def start_guarded(arguments: list[str]) -> tuple[int, int]:
    """Start the supervisor as a child; return its pid, and the pipe for its signs of life."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.set_inheritable(writer, True)
        os.environ[GUARD_PIPE] = str(writer)
        os.execv(sys.executable, [sys.executable, "-I", "-S"] + arguments)
    os.close(writer)
    return child, reader


def wait_for_end(child: int, pipe: int, timeout: float) -> int | None:
    """Wait until the supervisor has ended and return its wait status, or None if its signs of life stop.

    timeout: seconds without a sign of life. Touches no file, since the file system may hang.
    """
    # counted rather than read from the clock: when a machine is suspended, guard and supervisor stop alike
    silent = 0.0
    while silent < timeout:
        ready, _writable, _exceptional = select.select([pipe], [], [], 1.0)
        if ready and os.read(pipe, 4096):
            silent = 0.0
        elif ready:  # end of file: the supervisor is ending, since nobody else holds the pipe
            time.sleep(0.01)
            silent += 0.01
        else:
            silent += 1.0
        ended = reap()
        if child in ended:
            return ended[child]
    return None


def report_death(directory: str, status: int | None) -> None:
    """Send the message about the end of the run if the supervisor has not. status: its wait status, None if it hung."""
    if not os.path.exists(os.path.join(directory, NOTIFY)):
        return
    code = exit_code(status) if status is not None else 0
    end = {
        "SERVICE_RESULT": "watchdog" if status is None else "signal" if code < 0 else "exit-code",
        "EXIT_STATUS": signal.Signals(-code).name[len("SIG") :] if code < 0 else str(code),
    }
    command = [sys.executable, "-I", "-S", os.path.join(directory, "supervisor.py"), "--report-death", directory]
    start_in_background(command, os.devnull, end)
    wait_for_children(NOTIFICATION_END_TIMEOUT)


def remove_new_container(plan: Data, directory: str, was_requested: bool) -> None:
    """Make the container engine remove this node's container, which it may still be creating.

    was_requested: whether the engine was already asked, without looking into the run directory.
    """
    command = removal_command(plan, directory, CONTAINER_CREATION_TIMEOUT)
    is_creating = command != plan["remove"]
    if is_creating or not was_requested:
        timeout = CONTAINER_REMOVAL_TIMEOUT + (CONTAINER_CREATION_TIMEOUT if is_creating else 0.0)
        remove_container(command, os.path.join(directory, "supervisor.log"), timeout)


def remove_container(command: list[str], log: str, timeout: float) -> None:
    """Run the command that removes this node's container, with a time limit in seconds."""
    start_in_background(command, log)
    wait_for_children(timeout)


def wait_for_children(timeout: float) -> None:
    """Wait until all children have ended, and kill those that remain after the timeout."""
    deadline = time.monotonic() + timeout
    while descendants(os.getpid()) and time.monotonic() < deadline:
        reap()
        time.sleep(0.1)
    signal_all(descendants(os.getpid()), signal.SIGKILL)
