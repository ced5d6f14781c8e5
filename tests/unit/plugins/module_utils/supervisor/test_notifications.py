"""Notifications from the supervisor of rank 0, with real supervisors and servers on this machine."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import save as run_save
from ansible_collections.muster.training.plugins.module_utils._run import start as run_start
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import (
    KINDS,
    end_message,
    message,
)
from tests.unit.supervised import Run, command_line, end_by_force, eventually, free_port, make_run

SECRET = "s3cr3t-Wm4"
QUICK = [sys.executable, "-c", "print('here')"]
FAILS = [sys.executable, "-c", "raise ValueError('boom')"]
FOREVER = ["/bin/sleep", "600"]
EVENTS = ["started", "hang", "attempt", "notice", "limit", "ended"]

RunMaker = Callable[..., Run]


class WebhookServer:
    """A server that records requests, and replies with a status, late, or not at all."""

    def __init__(self) -> None:
        outer = self
        self.status = 200
        self.hangs = False
        self.release = threading.Event()
        self.bodies: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.bodies.append({"path": self.path, **json.loads(body)})
                if outer.hangs:
                    outer.release.wait(120)
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/{SECRET}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def events(self) -> list[str]:
        return [body["event"] for body in self.bodies]


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
        ports = {"lifeline_port": free_port(), "master_port": free_port(), "first_address": 121}
        run = make_run(tmp_path, list(commands), **{**ports, **options})
        for plan in run.plans:
            for node in plan["nodes"]:
                node["price_per_hour"] = 36000.0
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def start(run: Run, *urls: str, events: list[str] | None = None) -> None:
    notify = [{"url": url, "kind": "json", "events": events or EVENTS} for url in urls]
    for rank, plan in enumerate(run.plans):
        inputs = {"token": run.token, "environment": {}, "replace": False, "notify": notify}
        run_start.start(run.request(rank, plan=plan, supervisor=run.sources, **inputs))


def log(run: Run) -> str:
    return (run.node(0) / "supervisor.log").read_text()


def test_start_and_end_are_reported_once_each_by_node_0(make: RunMaker, server: WebhookServer) -> None:
    run = make(FAILS, FOREVER)
    start(run, server.url)
    run.wait_until_gone()
    assert server.events() == ["started", "ended"]
    assert server.bodies[0]["text"] == "all 2 nodes have checked in"
    end = server.bodies[1]
    assert (end["state"], end["run_id"]) == ("failed", run.run_id)
    first, *_more, cost, command = end["text"].splitlines()
    assert first.startswith("failed after 0:00:0") and first.endswith("on 2 nodes, world size 2")
    assert "the launcher on node0 ended with exit code 1" in end["text"]
    assert cost.startswith("cost: ") and cost.endswith(" USD")
    assert command == f"report: ./muster report {run.run_id}"
    assert log(run) == ""


def test_notice_is_reported_and_the_end_is_interrupted(make: RunMaker, server: WebhookServer) -> None:
    run = make(FOREVER)
    run.plans[0]["notices"]["grace"] = 1
    start(run, server.url)
    run.wait_for("running")
    run_save.save(run.request(0, stop=True))
    run.wait_until_gone()
    assert server.events() == ["started", "notice", "ended"]
    assert server.bodies[2]["state"] == "interrupted"


def test_only_chosen_events_are_reported(make: RunMaker, server: WebhookServer) -> None:
    run = make(QUICK)
    start(run, server.url, events=["ended"])
    run.wait_until_gone()
    assert server.events() == ["ended"]


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (500, "it replied with HTTP status 500"),
        (302, "it replied with HTTP status 302, a redirect, which is not followed: use the final URL"),
    ],
)
def test_each_server_that_rejects_a_notification_is_logged_on_one_line(
    make: RunMaker, server: WebhookServer, status: int, problem: str
) -> None:
    server.status = status
    run = make(QUICK)
    start(run, server.url)
    run.wait_until_gone()
    assert run.result()["state"] == "succeeded"
    lines = log(run).splitlines()
    expected = [
        f"muster: the notification '{event}' to json at 127.0.0.1 was not sent" for event in ("started", "ended")
    ]
    assert [line.partition(": it")[0] for line in lines] == expected
    assert all(line.endswith(problem) for line in lines)
    assert [body["path"] for body in server.bodies] == [f"/{SECRET}"] * 2, "no redirect was followed"


def test_each_server_that_cannot_be_reached_is_logged_on_one_line(make: RunMaker) -> None:
    run = make(QUICK)
    start(run, f"http://127.0.0.1:1/{SECRET}", f"http://muster.invalid/{SECRET}", events=["ended"])
    run.wait_until_gone()
    assert run.result()["state"] == "succeeded"
    assert sorted(line.partition(": [")[0] for line in log(run).splitlines()) == [
        "muster: the notification 'ended' to json at 127.0.0.1 was not sent",
        "muster: the notification 'ended' to json at muster.invalid was not sent",
    ]
    assert SECRET not in log(run)


def test_server_that_hangs_delays_neither_the_run_nor_its_result(make: RunMaker, server: WebhookServer) -> None:
    server.hangs = True
    run = make(QUICK)
    run.set_constant("NOTIFICATION_TIMEOUT", 2.0)
    start(run, server.url)
    assert run.result()["state"] == "succeeded"
    run.wait_for("succeeded")
    assert [line.partition(" was not sent: ")[2] for line in log(run).splitlines()] in (
        [], ["no reply within 2 s"]
    ), "the run has ended while the server still hangs"  # fmt: skip
    run.wait_until_gone()
    assert server.events() == ["started", "ended"]
    assert len(log(run).splitlines()) == 2


def test_url_is_only_in_a_private_file_that_the_run_removes(make: RunMaker, server: WebhookServer) -> None:
    server.hangs = True
    run = make(FOREVER, FOREVER, FOREVER)
    start(run, server.url)
    run.wait_for("running")
    eventually(lambda: server.bodies)
    holders = [path for rank in (0, 1, 2) for path in run.node(rank).rglob("*") if path.is_file() and holds(path)]
    assert holders == [run.node(rank) / "notify.json" for rank in (0, 1)]
    assert [path.stat().st_mode & 0o777 for path in holders] == [0o600] * 2
    processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    assert not [pid for pid in processes if SECRET in command_line(pid)]
    assert not [pid for pid in run.processes() if SECRET in environment(pid)]
    server.release.set()
    run.stop()
    run.wait_until_gone()
    assert not [path for rank in (0, 1, 2) for path in run.node(rank).rglob("*") if path.is_file() and holds(path)]
    assert server.events() == ["started", "ended"]


def holds(path: Path) -> bool:
    return SECRET.encode() in path.read_bytes()


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def test_loss_of_node_0_is_reported_by_node_1(make: RunMaker, server: WebhookServer) -> None:
    run = make(FOREVER, FOREVER)
    start(run, server.url)
    run.wait_for("running")
    eventually(lambda: server.events() == ["started"])
    os.kill(run.supervisor(0), signal.SIGKILL)
    run.wait_until_gone()
    assert server.events() == ["started", "ended"]
    message = server.bodies[1]
    assert (message["state"], message["title"]) == ("lost", f"run {run.run_id} lost")
    outcome, reason, cost, command = message["text"].splitlines()
    assert outcome == "node1 has ended its part of the run, but does not know how the run ended"
    assert reason.startswith("node0 is lost: its supervisor closed the lifeline")
    assert cost.startswith("cost so far: ") and command == f"status: ./muster status {run.run_id}"


# --- Mail -------------------------------------------------------------------------------------------------------------


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server without TLS, which records the dialogue."""

    daemon_threads = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(("127.0.0.1", 0), MailHandler)


class MailHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        data = False
        for raw in self.rfile:
            line = raw.decode().rstrip()
            self.server.lines.append(line)  # type: ignore[attr-defined]
            if data:
                data = line != "."
                if not data:
                    self.wfile.write(b"250 taken\r\n")
                continue
            data = line.upper() == "DATA"
            reply = b"354 go\r\n" if data else b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n"
            self.wfile.write(reply)


def test_mail_is_sent(make: RunMaker) -> None:
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run = make(QUICK)
        url = f"smtp://127.0.0.1:{server.server_address[1]}?from=muster@example.org&to=me@example.org"
        notify = [{"url": url, "kind": "smtp", "events": ["ended"]}]
        inputs = {"token": run.token, "environment": {}, "replace": False, "notify": notify}
        run_start.start(run.request(0, plan=run.plans[0], supervisor=run.sources, **inputs))
        run.wait_until_gone()
        server.shutdown()
    assert f"Subject: run {run.run_id} succeeded" in server.lines, log(run)
    assert any(line.startswith("rcpt TO:<me@example.org>") for line in server.lines)


# --- Messages ---------------------------------------------------------------------------------------------------------


HOSTILE = "<!channel> @everyone <https://evil|click> & \u202e"


@pytest.mark.parametrize(
    ("kind", "present", "absent"),
    [
        ("slack", "&lt;!channel&gt; @everyone", "<!channel>"),
        ("discord", '"allowed_mentions": {"parse": []}', "nothing-else"),
        ("teams", "AdaptiveCard", "nothing-else"),
        ("ntfy", "@everyone", "nothing-else"),
        ("json", '"event": "ended"', "nothing-else"),
    ],
)
def test_job_text_mentions_no_users(kind: str, present: str, absent: str) -> None:
    body = KINDS[kind](message({"run_id": "first"}, "ended", HOSTILE)).data.decode()
    assert present in body and absent not in body


def test_long_text_is_cut() -> None:
    content = message({"run_id": "first"}, "ended", "x" * 10**6)
    assert len(json.loads(KINDS["discord"](content).data)["content"]) < 2000


def test_message_about_a_failed_run_names_the_first_failed_rank() -> None:
    rank = {"rank": 3, "error": "ValueError: boom", "first": True}
    nodes = [{"name": "a", "report": {"ranks": [{"rank": 2, "error": "later"}, rank]}}]
    result: Any = {
        "state": "failed", "reason": "rank 3 on a ended with exit code 1", "first_node": "a", "world_size": 4,
        "nnodes": 2, "started": 0.0, "ended": 7325.0, "nodes": nodes,
    }  # fmt: skip
    plan = {"run_id": "first", "nodes": [{"price_per_hour": 1.0}, {"price_per_hour": 2.0}], "currency": "EUR"}
    assert end_message(plan, result)["text"].splitlines() == [
        "failed after 2:02:05 on 2 nodes, world size 4",
        "rank 3 on a ended with exit code 1",
        "rank 3 on a: ValueError: boom",
        "cost: 6.10 EUR",
        "report: ./muster report first",
    ]
    assert end_message({**plan, "nodes": [{}]}, result)["cost"] is None
