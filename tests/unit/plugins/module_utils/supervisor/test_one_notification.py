# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exactly one message reports the end of a run, whatever ends it: faults of docs/running.md on real supervisors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.plugins.module_utils.supervisor.test_notifications import WebhookServer, start
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

FOREVER = ["/bin/sleep", "600"]
REMOVES_ITS_FILES = [
    sys.executable,
    "-c",
    "import os, shutil, sys\n"
    "for entry in os.scandir(sys.argv[1]):\n"
    "    shutil.rmtree(entry.path, ignore_errors=True) if entry.is_dir() else os.unlink(entry.path)\n"
    "raise SystemExit(3)",
]


def kill_rank(run: Run) -> None:
    """Kill the job of node 1, as the kernel does for lack of memory."""
    (pid,) = (pid for pid, command in run.processes().items() if command.startswith("/bin/sleep") and on_node(pid, run))
    os.kill(pid, signal.SIGKILL)


def on_node(pid: int, run: Run) -> bool:
    """Return whether a process belongs to node 1."""
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    return str(run.node(1)).encode() in environment


def kill_supervisor(run: Run) -> None:
    os.kill(run.supervisor(1), signal.SIGKILL)


def stop_supervisor(run: Run) -> None:
    os.kill(run.supervisor(1), signal.SIGSTOP)


def stop_run(run: Run) -> None:
    run.stop(0)


def do_nothing(_run: Run) -> None:
    """The job itself does what ends the run."""


FAULTS: dict[str, tuple[list[str], Callable[[Run], None], str]] = {
    "rank killed": (FOREVER, kill_rank, "failed"),
    "supervisor killed": (FOREVER, kill_supervisor, "failed"),
    "supervisor hangs": (FOREVER, stop_supervisor, "failed"),
    "stopped": (FOREVER, stop_run, "stopped"),
    "files removed": (REMOVES_ITS_FILES, do_nothing, "failed"),
    "succeeded": (["/bin/true"], do_nothing, "succeeded"),
}


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    server = WebhookServer()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.mark.parametrize("name", FAULTS)
def test_the_end_is_reported_once(tmp_path: Path, server: WebhookServer, name: str) -> None:
    command, inject, state = FAULTS[name]
    ports = {"lifeline_port": free_port(), "master_port": free_port(), "first_address": 180}
    first = command if command[0] == "/bin/true" else FOREVER
    run = make_run(tmp_path, [first, command], timeouts={"silence": 3.0}, **ports)
    if command is REMOVES_ITS_FILES:
        run.plans[1]["command"] = [*command, str(run.node(1))]
    try:
        start(run, server.url)
        if inject is not do_nothing:
            run.wait_for("running")
            inject(run)
        eventually(lambda: "ended" in server.events(), 240)
        if name != "supervisor hangs":  # its guard ends it later
            run.wait_until_gone(120)
        assert server.events().count("ended") == 1
        assert server.bodies[-1]["state"] == state
    finally:
        for pid in run.processes():
            os.kill(pid, signal.SIGCONT)
        end_by_force(run)
