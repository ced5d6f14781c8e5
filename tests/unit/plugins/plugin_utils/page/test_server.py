# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's HTTP server: authorization for data and buttons, and the listed runs."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._page import run_list
from ansible_collections.muster.training.plugins.plugin_utils._page.api import MAX_FEEDS, PageApi
from ansible_collections.muster.training.plugins.plugin_utils._page.commands import COMMANDS, Commands, playbook_argv
from ansible_collections.muster.training.plugins.plugin_utils._page.run_list import RunList
from ansible_collections.muster.training.plugins.plugin_utils._page.server import PageServer, new_token
from tests.unit.plugins.plugin_utils.page.page_data import SECRET, make_plan, make_reply, make_result, write_record
from tests.unit.supervised import eventually


class Process:
    """A command that may have ended."""

    def __init__(self, output: str) -> None:
        self.stdout = io.BytesIO(output.encode())
        self.go_on = threading.Event()

    def wait(self) -> int:
        self.go_on.wait(60)
        return 3


class Page:
    """A page being served, with its records, and the commands that its buttons have started."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.started: list[Sequence[str]] = []
        self.processes: list[Any] = []
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        commands = Commands(["page.yml", "-i", "hosts"], ["page.yml"], "", self.start)
        self.api = PageApi(RunList(runs), self.call, commands)
        self.server = PageServer(self.api)

    def call(self, name: str, request: Mapping[str, Any], _timeout: float) -> dict[str, Any]:
        self.requests.append((name, request))
        return make_reply(outputs={} if request["cursors"] else {"/x": "hello\n"})

    def start(self, argv: Sequence[str]) -> Any:
        self.started.append(argv)
        self.processes.append(Process(f"first\n{SECRET}\n"))
        return self.processes[-1]

    def fetch(self, path: str, method: str = "GET", token: str | None = None, **headers: str) -> tuple[int, Any]:
        """Send a request as the page does; return its status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        all_headers = {"Authorization": f"Bearer {self.server.token if token is None else token}", **names}
        connection.request(method, path, headers=all_headers)
        with connection.getresponse() as reply:
            self.headers = reply.headers
            content = reply.read()
        connection.close()
        is_json = reply.headers["Content-Type"] == "application/json"
        return reply.status, json.loads(content) if is_json and content else content.decode()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


@contextlib.contextmanager
def serving(page: Page) -> Iterator[None]:
    """Serve a page in a thread, and terminate everything it has started."""
    thread = threading.Thread(target=page.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        for process in page.processes:
            process.go_on.set()
        for feed in page.api.feeds.values():
            feed.close()
        page.server.shutdown()
        page.server.server_close()
        thread.join()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    write_record(tmp_path / "runs", make_plan(run_id="first"))
    served = Page(tmp_path / "runs")
    with serving(served):
        yield served


def test_server_listens_only_on_the_loopback_address(page: Page) -> None:
    assert page.server.server_address[0] == "127.0.0.1"
    assert page.server.url() == f"{page.origin}/#token={page.server.token}"
    assert page.server.url("first").endswith("&run=first")


def test_tokens_are_long_and_differ() -> None:
    tokens = {new_token() for _number in range(100)}
    assert len(tokens) == 100 and min(map(len, tokens)) >= 43


def test_files_of_the_page_hold_no_data_and_need_no_token(page: Page) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, content = page.fetch(path, token="")
        assert status == 200 and page.headers["Content-Type"].startswith(kind) and content
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff" and page.headers["Cache-Control"] == "no-store"
    assert page.fetch("/../page.html")[0] == page.fetch("/page.html")[0] == page.fetch("/favicon.ico")[0] == 404


@pytest.mark.parametrize("path", ["/api/runs", "/api/runs/first", "/api/runs/first/output", "/api/nothing"])
def test_documents_need_the_token(page: Page, path: str) -> None:
    for token in ("", "x", page.server.token[:-1], page.server.token + "x", "\u00e9"):
        status, content = page.fetch(path, token=token)
        assert status == 401 and "first" not in json.dumps(content).split()
    assert page.fetch(path, Authorization=f"Basic {page.server.token}")[0] == 401
    assert page.fetch(f"{path}?token={page.server.token}", token="")[0] == 401
    assert page.fetch(path, token="", Cookie=f"token={page.server.token}")[0] == 401


@pytest.mark.parametrize(
    "host", ["attacker.example", "127.0.0.1.attacker.example:80", "localhost.x", "127.0.0.1:80@x", ""]
)
def test_foreign_host_names_for_this_machine_are_refused(page: Page, host: str) -> None:
    assert page.fetch("/api/runs", Host=host)[0] == 421
    assert page.fetch("/", Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "[::1]:8080"])
def test_forwarded_port_is_accepted(page: Page, host: str) -> None:
    assert page.fetch("/api/runs", Host=host)[0] == 200


def test_buttons_accept_requests_only_from_the_page_itself(page: Page) -> None:
    path = "/api/runs/first/stop"
    for origin in (
        "http://attacker.example",
        "null",
        f"https://127.0.0.1:{page.server.port}",
        "http://127.0.0.1:1",
        "",
    ):
        assert page.fetch(path, "POST", Origin=origin)[0] == 403
    assert page.fetch(path, "POST")[0] == 403
    assert page.fetch(path, "POST", Origin=page.origin, Sec_Fetch_Site="cross-site")[0] == 403
    assert page.fetch(path, "POST", Origin=page.origin, token="x")[0] == 401
    assert page.fetch(path, "POST", Origin=page.origin, Content_Length="7")[0] == 413
    assert page.fetch(path)[0] == 404  # a link or an image on another page would send a GET request
    assert page.started == []
    assert page.fetch(path, "POST", Origin=page.origin) == (202, {"started": "stop"})
    assert len(page.started) == 1


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "X"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    status, _content = page.fetch("/api/runs/first/stop", method, Origin=page.origin)
    assert status == 405 and page.headers["Access-Control-Allow-Origin"] is None and page.started == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_button_runs_the_playbook_and_shows_its_output(page: Page, name: str) -> None:
    assert page.fetch(f"/api/runs/first/{name}", "POST", Origin=page.origin)[0] == 202
    (argv,) = page.started
    assert argv[1:4] == [f"muster.training.{name}", "-i", "hosts"] and argv[0].endswith("ansible-playbook")
    assert argv[-1].startswith("launch_run_id=first run_id=first ")
    command = eventually(
        lambda: (state := page.fetch("/api/runs/first")[1]["command"]) and len(state["lines"]) == 2 and state
    )
    assert (command["name"], command["exit_code"], command["lines"][0]) == (name, None, "first")
    assert "\x1b" not in command["lines"][1]
    status, content = page.fetch("/api/runs/first/save", "POST", Origin=page.origin)
    assert status == 409 and "still running" in content["error"] and len(page.started) == 1
    page.processes[0].go_on.set()
    eventually(lambda: page.fetch("/api/runs/first")[1]["command"]["exit_code"] == 3)
    assert page.fetch("/api/runs/first/save", "POST", Origin=page.origin)[0] == 202


NAMES = ["second", "..", "first/..", "latest", "first%2fstop", "%00", "-e", "first;id", SECRET.replace(" ", "%20")[:20]]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_of_runs_start_nothing_and_read_nothing(page: Page, name: str) -> None:
    (page.runs / "latest").symlink_to("first")
    (page.runs.parent / "plan.json").write_text("{}")
    path = name.encode("ascii", "ignore").decode().replace("\x1b", "")
    assert page.fetch(f"/api/runs/{path}")[0] == 404
    assert page.fetch(f"/api/runs/{path}/stop", "POST", Origin=page.origin)[0] == 404
    assert page.started == [] and page.requests == []


@pytest.mark.parametrize("query", ["rank=x", "rank=-1", "rank=9999999999999", "after=1e3", "rank=\u0661"])
def test_hostile_parameters_are_refused(page: Page, query: str) -> None:
    path = f"/api/runs/first/output?{query}".encode().decode("latin-1")
    with contextlib.suppress(http.client.InvalidURL, UnicodeEncodeError):
        assert page.fetch(path)[0] == 400
    assert page.fetch(f"/api/runs?{'x' * 3000}")[0] == 414
    assert page.fetch("/api/runs/first/output?rank=99")[0] == 404
    assert page.fetch("/api/runs/first/search?text=")[0] == 400
    assert page.fetch(f"/api/runs/first/search?text={'x' * 201}")[0] == 400


def test_a_broken_or_idle_connection_is_harmless(page: Page) -> None:
    for data in (
        b"",
        b"GET",
        b"\x16\x03\x01" * 100,
        b"GET / HTTP/9\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", page.server.port)) as connection:
            connection.sendall(data)
    assert page.fetch("/api/runs")[0] == 200


def test_the_state_and_output_of_a_run_reach_the_page(page: Page) -> None:
    eventually(lambda: page.fetch("/api/runs/first")[1]["connection"]["state"] == "connected")
    assert page.fetch("/api/runs/first/output?rank=0&after=0")[1]["lines"] == ["hello"]
    assert page.fetch("/api/runs/first/output?rank=3&after=0")[1]["lines"] == ["hello"]
    curves = page.fetch("/api/runs/first/curves?node=gpu0")[1]
    assert page.fetch(f"/api/runs/first/curves?version={curves['version']}")[1] == {"version": curves["version"]}
    assert {name for name, request in page.requests if request["operation"] == "page"} == {"gpu0"}


def test_number_of_concurrently_read_runs_is_limited(page: Page) -> None:
    for number in range(MAX_FEEDS + 5):
        write_record(page.runs, make_plan(run_id=f"run-{number}"))
        page.fetch(f"/api/runs/run-{number}")
    assert len(page.api.feeds) == MAX_FEEDS


def test_the_start_page_lists_runs_the_newest_first(tmp_path: Path) -> None:
    plans = [make_plan(run_id=f"run-{number}") for number in range(3)]
    write_record(tmp_path, plans[0], make_result(plans[0], state="failed", reason=SECRET))
    write_record(tmp_path, plans[1], make_result(plans[1]))
    write_record(tmp_path, plans[2])
    for number, plan in enumerate(plans):
        os.utime(tmp_path / plan["run_id"] / "plan.json", (1000 + number, 1000 + number))
    (tmp_path / "run-1" / "report.html").write_text("")
    (tmp_path / "notes").mkdir()
    (tmp_path / "latest").symlink_to("run-2")
    runs = RunList(tmp_path)
    rows = runs.list()
    assert [(row["run_id"], row["state"]) for row in rows] == [
        ("run-2", "open"),
        ("run-1", "succeeded"),
        ("run-0", "failed"),
    ]
    assert rows[1]["report"].endswith("run-1/report.html") and rows[0]["report"] == ""
    assert rows[0]["job"] == "train.py --epochs 3" and "\x1b" not in rows[2]["reason"]
    (tmp_path / "run-2" / "result.json").write_text(json.dumps(make_result(plans[2])))
    assert runs.list()[0]["state"] == "succeeded"


def test_damaged_records_are_listed_and_their_number_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_list, "MAX_RUNS", 3)
    for number, text in enumerate(["", "[]", '{"nodes": 5}', "[" * 10_000, "\xff"]):
        (tmp_path / f"run-{number}").mkdir()
        (tmp_path / f"run-{number}" / "plan.json").write_text(text, encoding="latin-1")
    assert len(RunList(tmp_path).list()) == 3
    assert RunList(tmp_path / "missing").list() == []


def test_commands_that_would_ask_for_a_password_are_not_started() -> None:
    commands = Commands([], ["page.yml"], "-K prompts at each launch", lambda _argv: pytest.fail("started"))
    assert commands.run("stop", "first").startswith("-K prompts at each launch; or type: ")


def test_command_that_cannot_be_started_reports_the_reason() -> None:
    def fail(_argv: Sequence[str]) -> subprocess.Popen[bytes]:
        raise FileNotFoundError(2, "No such file or directory")

    assert "cannot be started: No such file" in Commands([], ["page.yml"], "", fail).run("stop", "first")


def test_the_command_keeps_the_options_of_the_page() -> None:
    argv = playbook_argv(
        ["-i", "hosts", "muster.training.page", "-e", "page_port=1"], ["muster.training.page"], "stop", "a"
    )
    assert argv[1:6] == ["-i", "hosts", "muster.training.stop", "-e", "page_port=1"]
