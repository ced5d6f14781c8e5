# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run supervisors without a start of Python for each: fork them from a process that has imported their code.

The process reads the arguments of one supervisor per line of its standard input, as JSON, and writes the pid of each.
At the end of the input it kills those that remain. As root, each supervisor sees only its own processes in /proc, as on
a node of its own; otherwise it sees those of all nodes, and each search costs as much as there are nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

LAUNCHER = Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "_program" / "launcher.py"
CLONE_NEWNS, CLONE_NEWPID = 0x20000, 0x20000000  # linux/sched.h
MS_REC_PRIVATE = 0x44000  # linux/mount.h: MS_REC | MS_PRIVATE
NAMESPACE = "/proc/self/ns/pid"
LIBC = ctypes.CDLL(None, use_errno=True)


class ForkedNodes:
    """The process that forks supervisors."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def start(self, directory: str, run_id: str, address: str) -> int:
        """Start the supervisor of a run directory; return its pid."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([directory, run_id, address]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@contextlib.contextmanager
def forked_nodes(program: str) -> Iterator[ForkedNodes]:
    """Yield a process that forks supervisors, which end with it; program: the folder with their modules."""
    command = [sys.executable, "-I", "-S", "-B", __file__, program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield ForkedNodes(process)


def checked(code: int) -> None:
    """Raise OSError if a function of the C library has failed."""
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def hide_other_nodes() -> None:
    """Mount a /proc that shows only the processes of this process's PID namespace."""
    checked(LIBC.unshare(CLONE_NEWNS))
    checked(LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    checked(LIBC.mount(b"proc", b"/proc", b"proc", 0, None))


def supervise(arguments: Sequence[str]) -> int:
    """Run a supervisor in this process, as its program does; return its exit code."""
    from ansible_collections.muster.training.plugins.module_utils._supervisor import entry

    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    os.chdir("/")
    return entry.main(list(arguments))


def run_node(line: str, own_namespace: int) -> NoReturn:
    """Run the supervisor of a line of the input in this forked process, and exit even if that fails."""
    try:
        os.close(own_namespace)
        if os.geteuid() == 0:
            hide_other_nodes()
        os._exit(supervise(json.loads(line)))
    finally:
        traceback.print_exc()
        os._exit(1)


def fork_nodes(lines: Iterable[str], own_namespace: int) -> None:
    """Fork a supervisor for each line, as root into a PID namespace of its own; at the end or on failure, kill all.

    Args:
        lines: The input.
        own_namespace: A descriptor of the PID namespace of this process.
    """
    pids = []
    try:
        for line in lines:
            if os.geteuid() == 0:
                checked(LIBC.unshare(CLONE_NEWPID))
            pid = os.fork()
            if pid == 0:
                run_node(line, own_namespace)
            pids.append(pid)
            if os.geteuid() == 0:
                checked(LIBC.setns(own_namespace, CLONE_NEWPID))
            print(pid, flush=True)
    finally:
        for pid in pids:  # none has been reaped, so none of these numbers can be another process's
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main(program: str) -> int:
    """Import the supervisor's code, and fork a supervisor for each line of the input."""
    specification = importlib.util.spec_from_file_location("launcher", LAUNCHER)
    assert specification is not None and specification.loader is not None
    launcher = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(launcher)
    launcher.make_importable(program)
    importlib.import_module(f"{launcher.PACKAGE}._supervisor.supervisor")
    gc.freeze()  # a collection would write to, and so copy, the memory that all nodes share
    fork_nodes(sys.stdin, os.open(NAMESPACE, os.O_RDONLY))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
