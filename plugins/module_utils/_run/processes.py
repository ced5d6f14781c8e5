# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find, start, signal and reap processes on a node, and describe how they ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess

from ansible_collections.muster.training.plugins.module_utils._run.safe_files import open_private

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Iterable

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # exit codes; the latter is what a shell or container engine reports
# Signals that end a process when something goes wrong, not on request, by number.
FATAL_SIGNALS = {
    int(number): number.name
    for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV)
}
MAX_RANK_DIGITS = 7
MAX_STAT_BYTES = 4096  # the kernel writes at most 52 numbers and a short name
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def become_subreaper() -> None:
    """Make the kernel reparent orphaned descendants to this process (Linux >= 3.4)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read_stat(path: str) -> list[bytes]:
    """Return the fields of a file such as /proc/PID/stat, starting with the state, or [] if the process has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # open() needs three times as many system calls, for each process
    except OSError:
        return []
    try:
        return os.read(descriptor, MAX_STAT_BYTES).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(descriptor)


def process_table() -> dict[int, tuple[int, str]]:
    """Return {pid: (parent pid, state letter)} of every visible process."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read_stat(f"/proc/{name}/stat")
            if fields:
                table[int(name)] = (int(fields[1]), fields[0].decode())
    return table


def descendants(root: int) -> list[int]:
    """Return the pids of all running descendants of a process, without zombies."""
    table = process_table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _state) in table.items():
        children.setdefault(parent, []).append(pid)
    running, queue = [], list(children.get(root, ()))
    while queue:
        pid = queue.pop()
        queue.extend(children.get(pid, ()))
        if table[pid][1] not in "ZX":
            running.append(pid)
    return running


def is_rank(pid: int, directory: str) -> bool:
    """Return whether a process is a rank of the run in this directory, or was started by such a rank."""
    return local_rank_of(pid, directory) is not None


def local_rank_of(pid: int, directory: str) -> int | None:
    """Return the local rank of a process that is, or was started by, a rank of the run in this directory, or None.

    Reads its environment: in a container, parent and PID are useless.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            variables = stream.read().split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return None
    if b"MUSTER_RUN_DIRECTORY=" + os.fsencode(directory) not in variables:
        return None
    return local_rank_in(variables)


def local_rank_in(variables: list[bytes]) -> int | None:
    """Return LOCAL_RANK from an environment, or None if it is unset or not a possible rank, because the job may change
    it.
    """
    numbers = [variable[len(b"LOCAL_RANK=") :] for variable in variables if variable.startswith(b"LOCAL_RANK=")]
    return next((int(number) for number in numbers if number.isdigit() and len(number) <= MAX_RANK_DIGITS), None)


def start_in_background(command: list[str], log: str, environment: dict[str, str] | None = None) -> int:
    """Start a command in the background, with its output in a log; return its pid, or 0 if it cannot be started.

    environment: variables to set in addition to those of this process.
    """
    variables = {**os.environ, **environment} if environment else None
    for output in dict.fromkeys((log, os.devnull)):  # the job may have replaced the log with a pipe, for example
        with contextlib.suppress(OSError), open(output, "ab", opener=open_private) as stream:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=variables)
            process.returncode = 0  # otherwise subprocess would reap it, and reap() would never see its end
            return process.pid
    return 0


def start_shielded(command: list[str], stdin: int, stdout: int) -> subprocess.Popen[bytes] | None:
    """Start a child that SIGTERM does not end, for reap() to reap; return None if it cannot be started.

    The end of the job sends SIGTERM to all descendants, and a blocked signal stays blocked in the child.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout)
    except OSError:
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    process.returncode = 0  # otherwise subprocess would reap it, and reap() would never see its end
    return process


def process_status(pid: int) -> dict[bytes, bytes]:
    """Return the fields of /proc/PID/status, or {} if the process has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            lines = [line.partition(b":") for line in stream.read(65536).splitlines()]
    except OSError:
        return {}
    return {name: value.strip() for name, _colon, value in lines}


def handled_signals(status: dict[bytes, bytes]) -> set[int]:
    """Return the signals for which a process has a handler."""
    mask = int(status.get(b"SigCgt", b"0"), 16)
    return {number for number in range(1, mask.bit_length() + 1) if mask >> (number - 1) & 1}


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that this user may signal."""
    for pid in pids:
        # the process has ended or belongs to root: in the latter case the unit's cgroup ends it
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> dict[int, int]:
    """Reap ended children, including adopted ones; return {pid: wait status}."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def exit_code(status: int) -> int:
    """Return a wait status in Popen's form: the exit code, or minus the signal's number."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def describe_exit(code: int | None) -> str:
    """Describe an exit code as returned by Popen: "exit code 139 (SIGSEGV)", "signal SIGKILL", or "no exit code"."""
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    name = FATAL_SIGNALS.get(code - 128)  # the exit code as a shell or container engine reports it
    return f"exit code {code} ({name})" if name else f"exit code {code}"


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed for lack of memory since boot, or None if this is unknown.

    Counts kills because the machine ran out, and at the limit of a container or service: see limit_hits().
    """
    try:
        with open("/proc/vmstat", encoding="ascii") as stream:
            for line in stream:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def limit_hits(groups: str = "/sys/fs/cgroup") -> int | None:
    """Return how often a container or service has reached its memory limit, or None if unknown.

    From cgroup v2 (admin-guide/cgroup-v2, memory.events): events in a group also count in its ancestors, so the count
    survives the container. It does not include the machine itself running out of memory.
    """
    hits = None
    with contextlib.suppress(OSError):
        for name in os.listdir(groups):
            with contextlib.suppress(OSError), open(f"{groups}/{name}/memory.events", encoding="ascii") as stream:
                hits = (hits or 0) + sum(int(line.split()[1]) for line in stream if line.startswith("oom "))
    return hits
