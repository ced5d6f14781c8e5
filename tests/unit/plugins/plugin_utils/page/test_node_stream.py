# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates that a node streams: the command, the process, and their use by the page's feed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.live_samples import FILE
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PAGE_IDLE_INTERVAL,
    PAGE_IDLE_TIMEOUT,
    PAGE_POLL_INTERVAL,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    REPLY_MARK,
    shell_command,
    standard_input,
)
from ansible_collections.muster.training.plugins.plugin_utils._page.feed import RunFeed
from ansible_collections.muster.training.plugins.plugin_utils._page.node_stream import NodeStream, stream_argv
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import RunView, is_news
from tests.unit.plugins.plugin_utils.page.page_data import make_plan, make_reply, make_sample
from tests.unit.plugins.plugin_utils.page.test_feed import Clock, Nodes, read_reply
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

# - the command


class Connection:
    """An Ansible connection with these options."""

    def __init__(self, transport: str, become: Any = None, **options: Any) -> None:
        self.transport, self.become, self.options = transport, become, options
        self._shell = None

    def get_option(self, name: str) -> Any:
        return self.options.get(name)

    def _build_command(self, program: str, kind: str, host: str, command: str) -> list[str]:
        assert kind == "ssh"
        return [program, host, command]


class Become:
    def __init__(self, password: str = "") -> None:
        self.password = password

    def get_option(self, _name: str) -> str:
        return self.password

    def build_become_command(self, command: str, _shell: Any) -> str:
        return f"sudo -n {command}"


def action(connection: Connection, password: str = "") -> Any:
    context = SimpleNamespace(password=password, remote_addr="203.0.113.1")
    return SimpleNamespace(_connection=connection, _play_context=context)


def test_the_command_is_the_one_that_ansible_would_run() -> None:
    command = 'P=/usr/bin/python3; exec "$P" -c "it\'s"'
    ssh = {"ssh_executable": "ssh", "host": "203.0.113.7"}
    quoted = f"/bin/sh -c {shlex.quote(command)}"
    assert stream_argv(action(Connection("ssh", **ssh)), command) == ["ssh", "203.0.113.7", quoted]
    assert stream_argv(action(Connection("ssh", ssh_executable="ssh")), command)[1] == "203.0.113.1"
    assert stream_argv(action(Connection("local")), command) == ["/bin/sh", "-c", quoted]
    as_root = stream_argv(action(Connection("ssh", Become(), **ssh)), command)
    assert as_root[-1] == f"/bin/sh -c {shlex.quote(f'sudo -n {command}')}"


@pytest.mark.parametrize(
    "refused",
    [
        action(Connection("ssh", password="secret")),
        action(Connection("ssh"), password="secret"),
        action(Connection("ssh", Become("secret"))),
        action(Connection("community.docker.docker")),
    ],
)
def test_connection_that_prompts_for_a_password_cannot_stream(refused: Any) -> None:
    assert stream_argv(refused, "true") == []


# - the process


def test_lines_that_are_not_replies_are_ignored() -> None:
    lines = ["BECOME-SUCCESS-x", f"{REPLY_MARK}no json", f'{REPLY_MARK}{{"one": 1}}', f"{REPLY_MARK}[2]"]
    stream = NodeStream(["/bin/sh", "-c", f"cat; printf '%s\\n' {shlex.join(lines)}"], b"input\n")
    assert stream.next(60) == {"one": 1}
    assert stream.next(60) is None
    stream.close()


def test_closing_ends_the_process() -> None:
    stream = NodeStream(["/bin/sleep", "600"], b"")
    stream.close()
    assert stream.process.returncode == -9 and stream.next(60) is None


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a run whose node prints on request, and takes only one sample."""
    job = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"
    ports: Any = {"lifeline_port": free_port(), "master_port": free_port()}
    run = make_run(tmp_path, [["/bin/sh", "-c", job]], {"sample": 600.0}, first_address=191, **ports)
    run.plans[0]["working_directory"] = str(tmp_path)
    yield run
    end_by_force(run)


def stream_of(run: Run, seconds: float = 600.0) -> NodeStream:
    fields = {"local_rank": 0, "attempt": 0, "cursors": {}, "sample_cursor": [0, 0, 0], "wait": 0}
    request = run.request(0, operation="page", mark=REPLY_MARK, seconds=seconds, **fields)
    command = shell_command(f"P={shlex.quote(sys.executable)}")
    return NodeStream(["/bin/sh", "-c", command], standard_input("_run.page_stream", request, limit=700))


def test_a_node_sends_samples_and_output_as_they_arise_until_the_run_ends(run: Run, tmp_path: Path) -> None:
    run.start()
    run.wait_for("running")
    stream = stream_of(run)
    view = RunView(run.run_id, run.plans[0])

    def take() -> dict[str, Any]:
        news = stream.next(60)
        assert news is not None and is_news(news), news
        view.take(news)
        return news

    eventually(lambda: take() and view.output_after(0)["lines"] == ["first"])
    eventually(lambda: take() and view.samples.number == 1)
    with (run.node(0) / FILE).open("a") as file:
        file.write(json.dumps(make_sample("node0", 7, 66.0)) + "\n")
    eventually(lambda: take() and view.samples.newest["node0"]["utilization"] == 66.0)
    (tmp_path / "go").touch()
    eventually(lambda: not take()["active"])
    assert view.result["state"] == "succeeded" and view.output_after(0)["lines"] == ["first", "last"]
    assert stream.next(60) is None
    stream.close()


def test_the_process_on_the_node_ends_after_its_timeout_and_without_a_reader(run: Run) -> None:
    run.start()
    run.wait_for("running")
    stream = stream_of(run, seconds=0.0)
    assert stream.next(60) is not None and stream.next(60) is None
    stream.close()
    reading, writing = os.pipe()
    os.close(reading)
    request = run.request(0, operation="page", mark=REPLY_MARK, seconds=600)
    request.update(local_rank=0, attempt=0, cursors={}, sample_cursor=[0, 0, 0], wait=0)
    command = ["/bin/sh", "-c", shell_command(f"P={shlex.quote(sys.executable)}")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.DEVNULL) as process:
        os.close(writing)
        process.communicate(standard_input("_run.page_stream", request), timeout=120)
    assert process.returncode != 0


# - the feed


class Stream:
    """A stream with these replies."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.is_closed = False

    def next(self, _timeout: float) -> Any:
        return self.replies.pop(0) if self.replies else None

    def close(self) -> None:
        self.is_closed = True


class StreamingNodes(Nodes):
    """Nodes that can stream."""

    def __init__(self, streams: list[Any], **replies: Any) -> None:
        super().__init__(**replies)
        self.streams = streams
        self.opened: list[tuple[str, Mapping[str, Any]]] = []

    def stream(self, name: str, request: Mapping[str, Any]) -> Any:
        self.opened.append((name, dict(request)))
        return self.streams.pop(0)


def make_feed(nodes: StreamingNodes) -> tuple[RunFeed, Clock]:
    clock = Clock()
    return RunFeed(RunView("first", make_plan(3)), nodes, clock), clock


def test_a_viewed_run_is_streamed_and_no_request_is_sent() -> None:
    stream = Stream(make_reply(samples=[make_sample("gpu1", 1)]), make_reply())
    nodes = StreamingNodes([stream])
    feed, clock = make_feed(nodes)
    assert [feed.step(), feed.step()] == [0.0, 0.0]
    assert nodes.requests == [] and len(nodes.opened) == 1 and feed.view.samples.newest["gpu1"]
    nodes.replies = {"gpu0": make_reply()}
    clock.now += PAGE_IDLE_TIMEOUT + 1
    assert feed.step() == PAGE_IDLE_INTERVAL
    assert stream.is_closed and nodes.queries() == [("gpu0", "page")], "nobody views it"


def test_a_stream_that_ends_is_opened_again_where_it_ended() -> None:
    nodes = StreamingNodes([Stream(make_reply()), Stream(make_reply())], gpu0=make_reply())
    feed, clock = make_feed(nodes)
    assert [feed.step(), feed.step()] == [0.0, PAGE_POLL_INTERVAL], "a request says whether the node still answers"
    assert feed.step() == PAGE_POLL_INTERVAL, "no new stream at once: it may fail each time"
    clock.now += PAGE_IDLE_INTERVAL
    assert feed.step() == 0.0
    assert [request["cursors"] for _name, request in nodes.opened] == [{}, {"/x/log": 5}]


def test_a_connection_that_cannot_stream_is_polled() -> None:
    nodes = StreamingNodes([None, None], gpu0=make_reply())
    feed, _clock = make_feed(nodes)
    assert [feed.step(), feed.step()] == [PAGE_POLL_INTERVAL] * 2
    assert nodes.queries() == [("gpu0", "page")] * 2


def test_the_successor_is_streamed_immediately() -> None:
    first, second = Stream(make_reply(active=False, status={"state": "died"})), Stream(make_reply())
    nodes = StreamingNodes([first, second], gpu1=read_reply(1), gpu2=read_reply(1))
    feed, _clock = make_feed(nodes)
    assert [feed.step(), feed.step()] == [0.0, 0.0]
    assert first.is_closed and [name for name, _request in nodes.opened] == ["gpu0", "gpu1"]
    assert feed.view.connection == {"node": "gpu1", "state": "connected", "text": ""}


def test_requests_wait_for_a_change_of_the_view() -> None:
    feed, _clock = make_feed(StreamingNodes([]))
    feed.wait_for_change(feed.version, 0.01)
    assert feed.version == 0
    feed.note_change()
    feed.wait_for_change(0, 600.0)
    feed.close()
    feed.wait_for_change(feed.version, 600.0)
