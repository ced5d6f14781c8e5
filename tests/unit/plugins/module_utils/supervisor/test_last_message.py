# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a run whose supervisor was killed is reported once, even though no other node can report it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import unit
from ansible_collections.muster.training.plugins.module_utils._run.secrets import NOTIFY
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications import last_message
from tests.unit.plugins.module_utils.supervisor.test_notifications import SECRET, WebhookServer, start
from tests.unit.plugins.module_utils.supervisor.test_one_notification import ELASTIC, ends
from tests.unit.restarting import power_off
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

FOREVER = ["/bin/sleep", "600"]
RunMaker = Callable[..., Run]


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    server = WebhookServer()
    yield server
    server.release.set()
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[RunMaker]:
    """Make runs, and clean up after them."""
    runs: list[Run] = []

    def maker(*commands: list[str], **options: Any) -> Run:
        ports = {"lifeline_port": free_port(), "master_port": free_port(), "first_address": 195}
        run = make_run(tmp_path, list(commands), timeouts={"silence": 3.0}, **ports, **options)
        for plan in run.plans:
            plan["currency"] = "USD"
            for node in plan["nodes"]:
                node["price_per_hour"] = 36000.0
        runs.append(run)
        return run

    yield maker
    for run in runs:
        for pid in run.processes():
            os.kill(pid, signal.SIGCONT)
        end_by_force(run)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (signal.SIGKILL, "the supervisor on node0 was killed (SIGKILL), and the job with it"),
        (signal.SIGSTOP, "the supervisor on node0 hung, so it was killed, and the job with it"),
    ],
)
def test_killed_supervisor_of_a_single_node_is_reported(
    make: RunMaker, server: WebhookServer, number: signal.Signals, text: str
) -> None:
    run = make(FOREVER)
    start(run, server.url)
    run.wait_for("running")
    os.kill(run.supervisor(0), number)
    eventually(lambda: ends(server), 240)
    run.wait_until_gone()
    (message,) = ends(server)
    assert message["state"] == "failed" and message["title"] == f"run {run.run_id} failed"
    first, reason, cost, command = message["text"].splitlines()
    assert first.startswith("failed after 0:00:") and first.endswith(", world size 1")
    assert text in reason
    assert cost.startswith("cost: ") and cost.endswith(" USD")
    assert command == f"report: ./muster report {run.run_id}"
    assert not (run.node(0) / NOTIFY).exists()
    assert SECRET not in (run.node(0) / "supervisor.log").read_text()


def test_killed_supervisor_of_the_last_node_is_reported(make: RunMaker, server: WebhookServer) -> None:
    run = make(FOREVER, FOREVER, **ELASTIC)
    start(run, server.url)
    run.wait_for("running")
    power_off(run, 1)
    eventually(lambda: any("the run continues with 1 of 2 nodes" in text for text in run.events()))
    eventually(lambda: [node["state"] for node in run.read(0, "status.json")["nodes"]] == ["running", "lost"])
    os.kill(run.supervisor(0), signal.SIGKILL)
    run.wait_until_gone()
    (message,) = ends(server)
    assert message["state"] == "failed"


@pytest.mark.parametrize("how", ["succeeds", "stopped"])
def test_supervisor_that_ends_by_itself_is_reported_once(make: RunMaker, server: WebhookServer, how: str) -> None:
    run = make(["/bin/true"] if how == "succeeds" else FOREVER)
    start(run, server.url)
    if how == "stopped":
        run.wait_for("running")
        run.stop()
    run.wait_until_gone()
    assert [message["state"] for message in ends(server)] == [{"succeeds": "succeeded"}.get(how, how)]


def test_hanging_server_does_not_keep_the_guard_alive(make: RunMaker, server: WebhookServer) -> None:
    server.hangs = True
    run = make(FOREVER)
    run.set_constant("NOTIFICATION_TIMEOUT", 1.0)
    start(run, server.url)
    run.wait_for("running")
    os.kill(run.supervisor(0), signal.SIGKILL)
    run.wait_until_gone()
    log = (run.node(0) / "supervisor.log").read_text()
    assert log.count("the notification 'ended' to json at 127.0.0.1 was not sent") == 1 and SECRET not in log


# --- The content of the message, and its only sender


def write_run(run: Run, rank: int, **status: Any) -> str:
    """Write the run directory of a node as a supervisor leaves it."""
    directory = run.node(rank)
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(run.plans[rank]))
    common = {"state": "running", "message": "", "since": 1.0, "started": 1.0, "updated": 1.0, "report": None}
    (directory / "status.json").write_text(json.dumps({**common, **status}))
    (directory / "supervisor.json").write_text(json.dumps({"pid": 4711, "boot": "", "oom_kills": 7}))
    return str(directory)


def views(*states: str) -> list[dict[str, Any]]:
    return [
        {"name": f"node{number}", "node_rank": number, "state": state, "since": 1.0}
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("rank", "states", "is_sent"),
    [
        (0, ["running"], True),
        (0, ["running", "running"], False),
        (0, ["running", "lost"], True),
        (0, ["running", "ended"], False),
        (0, ["running", "lost", "spare"], False),
        (1, ["running", "running"], False),
    ],
)
def test_other_nodes_report_the_loss_of_the_leader(make: RunMaker, rank: int, states: list[str], is_sent: bool) -> None:
    run = make(*[FOREVER] * len(states))
    directory = write_run(run, rank, nodes=views(*states) if rank == 0 else None)
    assert (last_message.last_message(directory, {}) is not None) == is_sent


def test_supervisor_that_was_killed_after_the_result_reports_the_result(make: RunMaker) -> None:
    run = make(FOREVER)
    directory = write_run(run, 0, nodes=views("ended"))
    result: dict[str, Any] = {
        "run_id": run.run_id,
        "state": "succeeded",
        "reason": "",
        "first_node": None,
        "world_size": 1,
    }
    result.update(nnodes=1, started=1.0, ended=61.0, nodes=[])
    Path(directory, "result.json").write_text(json.dumps(result))
    message = last_message.last_message(directory, {})
    assert message is not None and message["state"] == "succeeded" and "0:01:00" in message["text"]


def test_supervisor_killed_for_lack_of_memory_is_reported_as_such(
    make: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_run(make(FOREVER), 0, nodes=views("running"))
    monkeypatch.setattr(last_message, "oom_kills", lambda: 9)
    message = last_message.last_message(directory, {"SERVICE_RESULT": "signal", "EXIT_STATUS": "KILL"})
    assert message is not None and message["text"].splitlines()[1] == (
        "node0 ran out of memory: the kernel killed 2 processes during the run. Then the supervisor on node0 was "
        "killed (SIGKILL), and the job with it"
    )


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (
            {"SERVICE_RESULT": "exit-code", "EXIT_STATUS": "1"},
            "the supervisor on a ended with exit code 1, and the job ended",
        ),
        ({"SERVICE_RESULT": "timeout", "EXIT_STATUS": "TERM"}, "the supervisor on a was killed (SIGTERM), and the job"),
        ({}, "the supervisor on a was killed, and the job"),
    ],
)
def test_death_of_a_supervisor_is_described(environment: dict[str, str], text: str) -> None:
    assert last_message.describe_death("a", environment, 0) == f"{text} with it"


# --- The unit


def test_unit_reports_the_end_before_removing_the_urls(make: RunMaker) -> None:
    run = make(FOREVER)
    directory = Path(write_run(run, 0))
    command = unit.unit_command(run.plans[0], str(directory), "me", ["/usr/bin/python3"])
    assert not any(last_message.OPTION in word for word in command), "nobody is to be notified"
    (directory / NOTIFY).write_text(json.dumps([{"url": SECRET}]))
    command = unit.unit_command(run.plans[0], str(directory), "me", ["/usr/bin/python3"])
    ends = [word for word in command if word.startswith("--property=ExecStopPost=")]
    assert last_message.OPTION in ends[0] and "/bin/rm" in ends[1] and SECRET not in " ".join(command)


@pytest.mark.parametrize("has_urls", [True, False])
def test_unit_of_a_supervisor_that_has_reported_the_end_starts_nothing(tmp_path: Path, has_urls: bool) -> None:
    directory = tmp_path / "it's a $HOME dir"
    directory.mkdir()
    (directory / "supervisor.py").write_text("import sys; print(sys.argv[1:])")
    if has_urls:
        (directory / NOTIFY).touch()
    command = [word.replace("$$", "$") for word in unit.report_of_death(str(directory))]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == (f"{[last_message.OPTION, str(directory)]}\n" if has_urls else "")
    assert sys.executable in command
