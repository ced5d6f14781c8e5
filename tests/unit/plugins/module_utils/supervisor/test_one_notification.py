# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exactly one message reports the end of a run, whatever the cause: the faults in docs/running.md with real
supervisors.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit import restarting, supervised
from tests.unit.plugins.module_utils.supervisor.test_notifications import WebhookServer, start
from tests.unit.restarting import make_restarting, power_off, wait_for_ranks
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run, own_network

FOREVER = ["/bin/sleep", "600"]
REMOVES_ITS_FILES = [
    sys.executable,
    "-c",
    "import os, shutil, sys\n"
    "for entry in os.scandir(sys.argv[1]):\n"
    "    shutil.rmtree(entry.path, ignore_errors=True) if entry.is_dir() else os.unlink(entry.path)\n"
    "raise SystemExit(3)",
]


class EndScenario(NamedTuple):
    """The cause of a run's end, the state in the message, and the job of node 1."""

    inject: Callable[[Run], object]
    state: str
    job: list[str] = FOREVER
    options: dict[str, Any] = {}


def kill_rank(run: Run) -> None:
    """Kill node 1's job, as the kernel does when memory runs out."""
    (pid,) = (pid for pid, command in run.processes().items() if command.startswith("/bin/sleep") and on_node(pid, run))
    os.kill(pid, signal.SIGKILL)


def on_node(pid: int, run: Run) -> bool:
    """Return whether a process belongs to node 1."""
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    return str(run.node(1)).encode() in environment


def signal_supervisor(rank: int, number: signal.Signals) -> Callable[[Run], object]:
    return lambda run: os.kill(run.supervisor(rank), number)


def reboot(rank: int) -> Callable[[Run], object]:
    """End a supervisor as systemd does while its machine shuts down; `nologin` is the sign of that."""

    def inject(run: Run) -> None:
        (run.directory / "nologin").touch()
        os.kill(run.supervisor(rank), signal.SIGTERM)

    return inject


def fill_disk(run: Run) -> None:
    """Make all writes of node 0's supervisor fail, and end the job."""
    resource.prlimit(run.supervisor(0), resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    kill_rank(run)


def lose_node_of_elastic_run(run: Run) -> None:
    """Kill a node; the run continues without it until the user stops it."""
    power_off(run, 1)
    eventually(lambda: any("the run continues with 1 of 2 nodes" in text for text in run.events()))
    run.stop(0)


def wait_for_end(run: Run) -> None:
    """Do nothing: the job itself ends the run."""


ELASTIC = {"min_nnodes": 1, "launcher": "torchrun", "rdzv_backend": "c10d"}
END_SCENARIOS = {
    "rank killed": EndScenario(kill_rank, "failed"),
    "supervisor killed": EndScenario(signal_supervisor(1, signal.SIGKILL), "failed"),
    "supervisor hangs": EndScenario(signal_supervisor(1, signal.SIGSTOP), "failed"),
    "supervisor of node 0 killed": EndScenario(signal_supervisor(0, signal.SIGKILL), "lost"),
    "node loses power": EndScenario(lambda run: power_off(run, 1), "failed"),
    "node 0 loses power": EndScenario(lambda run: power_off(run, 0), "lost"),
    "node rebooted": EndScenario(reboot(1), "failed"),
    "node 0 rebooted": EndScenario(reboot(0), "failed"),
    "disk full": EndScenario(fill_disk, "failed"),
    "elastic run loses a node": EndScenario(lose_node_of_elastic_run, "stopped", options=ELASTIC),
    "stopped": EndScenario(lambda run: run.stop(0), "stopped"),
    "files removed": EndScenario(wait_for_end, "failed", REMOVES_ITS_FILES),
    "succeeded": EndScenario(wait_for_end, "succeeded", ["/bin/true"]),
}


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    server = WebhookServer()
    yield server
    server.server.shutdown()
    server.server.server_close()


def ends(server: WebhookServer) -> list[Any]:
    return [body for body in server.bodies if body["event"] == "ended"]


@pytest.mark.parametrize("name", END_SCENARIOS)
def test_the_end_is_reported_once(tmp_path: Path, server: WebhookServer, name: str) -> None:
    scenario = END_SCENARIOS[name]
    ports = {"lifeline_port": free_port(), "master_port": free_port(), "first_address": 180}
    first = scenario.job if scenario.job == ["/bin/true"] else FOREVER
    run = make_run(tmp_path, [first, scenario.job], timeouts={"silence": 3.0}, **ports, **scenario.options)
    signs = "program/_run/machine_shutdown.py"
    run.sources[signs] += f"\nSIGNS = ({str(tmp_path / 'nologin')!r},)\n"
    if scenario.job is REMOVES_ITS_FILES:
        run.plans[1]["command"] = [*scenario.job, str(run.node(1))]
    try:
        start(run, server.url)
        if scenario.inject is not wait_for_end:
            run.wait_for("running")
            scenario.inject(run)
        eventually(lambda: ends(server), 240)
        # the guard ends a hanging supervisor later; until then, the supervisor may continue
        if name == "supervisor hangs":
            with contextlib.suppress(ProcessLookupError):
                signal_supervisor(1, signal.SIGCONT)(run)
        run.wait_until_gone(120)
        (message,) = ends(server)
        assert message["state"] == scenario.state, message
    finally:
        for pid in run.processes():
            os.kill(pid, signal.SIGCONT)
        end_by_force(run)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: WebhookServer) -> Iterator[restarting.Maker]:
    """Start runs of three nodes that may restart, and clean up after them."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(39))
    runs: list[Run] = []

    def maker() -> Run:
        run = make_restarting(tmp_path, restarting.WAIT)
        runs.append(run)
        start(run, server.url)
        wait_for_ranks(run, 0, range(3))
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def test_successor_of_node_0_reports_the_end(make: restarting.Maker, server: WebhookServer) -> None:
    run = make()
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 2])
    eventually(lambda: "attempt" in server.events())
    assert not ends(server), "the run continues"
    run.stop(2)
    run.wait_until_gone()
    (message,) = ends(server)
    assert message["state"] == "stopped"


def test_node_that_finds_no_majority_reports_the_loss(make: restarting.Maker, server: WebhookServer) -> None:
    run = make()
    power_off(run, 0, 1)
    eventually(lambda: ends(server), 240)
    run.wait_until_gone()
    (message,) = ends(server)
    assert message["state"] == "lost" and "2 of the 3 nodes" in message["text"]
