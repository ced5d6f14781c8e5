"""The lifeline and the end of a run, with real supervisors, sockets and processes on this machine."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import running_supervisors as run_alive
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run import watch as run_watch
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER, last_sample
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import HEAD_START_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import MAX_UNAUTHENTICATED
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import handshake_mac
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import MOUNT_CHECK
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import render_verdict
from tests.unit.supervised import (
    NETWORK,
    Run,
    Stranger,
    Voice,
    command_line,
    end_by_force,
    eventually,
    free_port,
    make_run,
)

FOREVER = ["/bin/sleep", "600"]
# Runs until its file `go` exists.
UNTIL_RELEASED = ["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]
# All nodes run the same program. Node 1 also reports to node 0, whose own reports are covered by the tests with both
# ranks, such as test_an_exception_ends_the_run_everywhere_and_is_reported.
ONE_RANK = [pytest.param(0, marks=pytest.mark.thorough), 1]

RunMaker = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[RunMaker]:
    """Make runs, and clean up after them."""
    runs: list[Run] = []

    def maker(*commands: list[str], **options: Any) -> Run:
        run = make_run(tmp_path, list(commands), **options)
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def resident_kilobytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no memory")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def is_refused(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) != 0


def assert_no_leftovers(run: Run) -> None:
    run.wait_until_gone()
    assert is_refused(run.lifeline)
    for rank, plan in enumerate(run.plans):
        assert not os.path.exists(plan["temporary_directory"])
        remaining = {path.name for path in run.node(rank).iterdir()}
        assert not remaining & {"token", "environment.json", "reserve"}, remaining
        assert not [name for name in remaining if name.endswith(".tmp")], remaining


# --- Successful runs --------------------------------------------------------------------------------------------------


def test_a_normal_end_removes_processes_port_and_secrets(make: RunMaker) -> None:
    write = ["/bin/sh", "-c", 'echo "$SECRET" > "$TMPDIR/kept"; echo well']
    run = make(write, write, write)
    run.start(environment={"SECRET": "s3cr3t"})
    run.wait_for("succeeded")
    assert_no_leftovers(run)
    result = run.result()
    assert result["state"] == "succeeded"
    assert [node["report"]["exit_code"] for node in result["nodes"]] == [0, 0, 0]
    assert run.node(0).stat().st_mode & 0o077 == 0, "others can look into it"
    for path in run.node(0).rglob("*"):
        assert not path.is_file() or "s3cr3t" not in path.read_text(errors="replace"), path


def test_nothing_starts_until_all_nodes_have_checked_in(make: RunMaker) -> None:
    run = make(["/bin/sh", "-c", "echo started"], ["/bin/sh", "-c", "echo started"])
    run.start(0)
    eventually(lambda: not is_refused(run.lifeline))
    three_heartbeats_later = time.monotonic() + 3 * run.plans[0]["timeouts"]["heartbeat"]
    eventually(lambda: time.monotonic() > three_heartbeats_later)
    assert run.state(0) == "starting" and not (run.node(0) / "launcher.log").exists()
    run.start(1)
    run.wait_for("succeeded")


def test_rank_0_starts_ahead_of_the_others(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, FOREVER)
    run.start()
    run.wait_for("running")
    first, *later = ((run.node(rank) / "launcher.log").stat().st_mtime for rank in range(3))
    tick = 0.02  # the file system's clock
    assert min(later) - first > HEAD_START_INTERVAL - tick


def test_a_node_that_does_not_check_in_ends_the_run(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, FOREVER, timeouts={"start": 1.0})
    run.start(0, 1)
    run.wait_for("failed", 0, 1)
    assert "node2 did not check in within 1 s" in run.result()["reason"]
    run.wait_until_gone()


@pytest.mark.parametrize("rank", ONE_RANK)
def test_logs_over_the_limit_lose_their_middle_and_the_job_continues(make: RunMaker, rank: int) -> None:
    write = f'echo first; head -c 6000000 /dev/zero | tr "\\0" "x"; echo; echo last; {UNTIL_RELEASED[2]}; echo after'
    commands = [UNTIL_RELEASED, UNTIL_RELEASED]
    commands[rank] = ["/bin/sh", "-c", write]
    run = make(*commands)
    run.set_constant("LOG_CHECK_INTERVAL", 0.2)
    for plan in run.plans:
        plan["log_limit"] = 2000000
    run.start()
    log = run.node(rank) / "launcher.log"
    output = f"the logs on node{rank} took up more than 0.002 GB (launch_log_limit): the middle of {log} was removed"
    run.wait_for("running")
    eventually(lambda: output in run.events())
    eventually(lambda: log.read_bytes().endswith(b"last\n") and log.stat().st_blocks * 512 < 2000000)
    # the hub's events arrive over the lifeline and a node's status in its file: neither waits for the other
    eventually(lambda: run_status.read(run.request(rank, wait=0))["run"]["message"] == output)
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    log_text, cursors = "", dict[str, int]()
    while text := run_watch.read_new(str(log), cursors, True):
        log_text += text
    assert log_text.startswith("first\nx") and log_text.endswith("x\nlast\nafter\n") and len(log_text) < 2000000
    assert "\0" not in log_text
    assert f"  {output}" in render_verdict(verdict_from_hub(run.plans[0], run.result()), "record", {}).splitlines()


def test_concurrent_runs_do_not_affect_each_other(make: RunMaker) -> None:
    first_run = make(FOREVER, FOREVER)
    second_run = make(UNTIL_RELEASED, UNTIL_RELEASED, first_address=101)
    first_run.start()
    second_run.start()
    first_run.wait_for("running")
    second_run.wait_for("running")
    assert first_run.stop()["stopped"] == [first_run.run_id]
    first_run.wait_until_gone()
    assert second_run.state(0) == second_run.state(1) == "running"
    (second_run.directory / "go").touch()
    second_run.wait_for("succeeded")


def test_end_message_of_rank_0_counts_even_if_it_disconnects_immediately(make: RunMaker) -> None:
    run = make(FOREVER, ["/bin/true"])
    with socket.create_server(run.lifeline) as listener:
        listener.settimeout(120.0)
        run.start(1)
        connection, _address = listener.accept()
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            stream.write('{"nonce": "mine"}\n')
            stream.flush()
            peer_nonce = json.loads(stream.readline())["nonce"]
            mac = handshake_mac(run.token, "server", run.run_id, 1, "mine", peer_nonce)
            voice = Voice("server", handshake_mac(run.token, "key", run.run_id, 1, "mine", peer_nonce))
            stream.write(json.dumps({"mac": mac}) + "\n" + voice.sign({"type": "go"}).decode())
            stream.flush()
            while voice.verify(stream.readline().encode())["type"] != "report":
                pass
            end = {"type": "end", "state": "succeeded", "message": ""}
            connection.sendall(voice.sign({"type": "beat"}) + voice.sign(end))
    run.wait_for("succeeded", 1)
    run.wait_until_gone()


# --- Unknown clients --------------------------------------------------------------------------------------------------

HELLO = {"node_rank": 1, "nonce": "mine", "mac": "0" * 64}
GARBAGE = {
    "no JSON": b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n",
    "bytes": bytes(range(256)) + b"\n",
    "JSON that is no object": b"[1, 2]\n",
    "empty line": b"\n",
    "nothing of a hello": b"{}\n",
    "hello without the token": b'{"node_rank": 1, "nonce": "mine", "mac": "%s"}\n' % (b"0" * 64),
    "a rank that is not there": b'{"node_rank": 7, "nonce": "mine", "mac": ""}\n',
    "rank 0": b'{"node_rank": 0, "nonce": "mine", "mac": ""}\n',
    "rank below 0": b'{"node_rank": -1, "nonce": "mine", "mac": ""}\n',
    "a rank that is true": b'{"node_rank": true, "nonce": "mine", "mac": ""}\n',
    "a nonce that is no text": b'{"node_rank": 1, "nonce": ["mine"], "mac": ""}\n',
    "a nonce that is half a character": b'{"node_rank": 1, "nonce": "\\ud800", "mac": ""}\n',
    "a proof that is half a character": b'{"node_rank": 1, "nonce": "mine", "mac": "\\udfff"}\n',
    "a report without the token": b'{"type": "report", "report": {"exit_code": 1}}\n',
    "a stop without the token": b'{"type": "stop", "reason": "because"}\n',
    "very deep JSON": b"[" * 60000 + b"\n",
    "a very long number": b'{"node_rank": ' + b"9" * 60000 + b"}\n",
    "a line without an end": b"x" * 70000,
    "a megabyte without an end": b"x" * 1000000,
}


def test_unknown_clients_are_refused_and_cause_no_harm(make: RunMaker) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.start()
    run.wait_for("running")
    for what, data in GARBAGE.items():
        stranger = Stranger(run.lifeline)
        stranger.send(data)
        assert stranger.is_refused(), what
        assert run.processes(), what
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    assert_no_leftovers(run)


def test_a_peer_with_another_token_is_refused(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, timeouts={"start": 2.0})
    run.start(0)
    right, run.token = run.token, "0" * 64
    run.start(1)
    run.token = right
    run.wait_for("failed")
    assert "node1 did not check in" in run.result()["reason"]
    run.wait_until_gone()


def test_peer_ignores_a_server_without_the_token(make: RunMaker) -> None:
    """A foreign server uses rank 0's port: the peer gets no valid MAC, and starts nothing."""
    run = make(FOREVER, FOREVER, timeouts={"start": 5.0})
    with socket.create_server(run.lifeline) as listener:
        listener.settimeout(120.0)
        run.start(1)
        for _attempt in range(2):
            connection, _address = listener.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as stream:
                stream.write('{"nonce": "theirs"}\n')
                stream.flush()
                assert '"mac"' in stream.readline()
                stream.write('{"mac": "%s"}\n{"type": "go"}\n' % ("0" * 64))
                stream.flush()
                assert stream.readline() == "", "the peer stays with one that has no token"
        connection, _address = listener.accept()
        with connection:
            connection.sendall(b'{"nonce": "\\ud800"}\n')
            run.wait_for("failed", 1)
    assert not (run.node(1) / "launcher.log").exists()
    run.wait_until_gone()


class Relay:
    """A relay between a peer and rank 0 that forwards each line, and may add lines."""

    def __init__(self, run: Run) -> None:
        self.listener = socket.create_server((f"{NETWORK}.250", free_port()))
        self.run = run
        self.passed: dict[str, list[bytes]] = {"peer": [], "server": []}
        self.ends: dict[str, socket.socket] = {}  # the peer of each side
        for plan in run.plans[1:]:
            plan["lifeline"] = dict(zip(("address", "port"), self.listener.getsockname(), strict=True))
        threading.Thread(target=self.intercept, daemon=True).start()

    def intercept(self) -> None:
        """Intercept each connection that the peer makes."""
        with contextlib.suppress(OSError):
            while True:
                peer, _address = self.listener.accept()
                try:
                    rank_0 = socket.create_connection(self.run.lifeline, timeout=120.0)
                except OSError:  # the hub is not listening yet: the peer will connect again
                    peer.close()
                    continue
                self.ends = {"peer": rank_0, "server": peer}
                for side, source in (("peer", peer), ("server", rank_0)):
                    threading.Thread(target=self.forward, args=(side, source, self.ends[side]), daemon=True).start()

    def forward(self, side: str, source: socket.socket, target: socket.socket) -> None:
        """Forward each line from one side, and the end of its output."""
        with contextlib.suppress(OSError), source.makefile("rb") as stream:
            for line in stream:
                self.passed[side].append(line)
                target.sendall(line)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for item in (self.listener, *self.ends.values()):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()


@pytest.mark.parametrize(
    ("side", "line"),
    [
        ("server", b'{"type": "start", "command": "touch owned"}\n'),
        ("server", b'{"type": "stop", "reason": "because"}\n'),
        ("server", b'{"type": "end", "state": "succeeded", "message": ""}\n'),
        ("server", b""),
        ("peer", b'{"type": "report", "report": {"exit_code": 0}}\n'),
        ("peer", b'{"type": "stop", "reason": "because"}\n'),
        ("peer", b""),
    ],
    ids=["start", "stop", "end", "once more", "report", "peer's stop", "peer's once more"],
)
def test_relay_cannot_inject_or_replay_lifeline_messages(make: RunMaker, side: str, line: bytes) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.set_constant("RECONNECT_TIMEOUT", 120.0)  # the peer reconnects, and the run continues
    for plan in run.plans:
        plan["remote_start"] = bool(line) and b"start" in line
    relay = Relay(run)
    try:
        run.start(1, 0)  # the peer connects before rank 0 is listening, and then again
        if run.plans[0]["remote_start"]:
            eventually(lambda: run.state(1) == "running")
        else:
            run.wait_for("running")
        eventually(lambda: len(relay.passed[side]) > 5)
        greetings = len([item for item in relay.passed["server"] if b"nonce" in item])
        relay.ends[side].sendall(line or relay.passed[side][-1])
        eventually(lambda: len([item for item in relay.passed["server"] if b"nonce" in item]) > greetings)
        eventually(lambda: "beat" in relay.passed["server"][-1].decode())
        assert not (run.directory / "owned").exists()
        assert run.read(0, "result.json") is None and run.processes()
        if not run.plans[0]["remote_start"]:
            assert run.state(0) == run.state(1) == "running"
            (run.directory / "go").touch()
            run.wait_for("succeeded")
    finally:
        relay.close()


def test_many_silent_connections_do_not_block_a_peer(make: RunMaker) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.set_constant("AUTHENTICATION_TIMEOUT", 3600.0)  # disconnecting them on time does not help the peer
    run.start(0)
    supervisor = run.supervisor(0)
    eventually(lambda: not is_refused(run.lifeline))
    strangers = []
    for _number in range(500):
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.connect_ex(run.lifeline)
        strangers.append(stranger)
    eventually(lambda: open_files(supervisor) >= MAX_UNAUTHENTICATED)
    run.start(1)
    run.wait_for("running")
    assert open_files(supervisor) < MAX_UNAUTHENTICATED + 32
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    for stranger in strangers:
        stranger.close()


def test_flood_of_data_does_not_exhaust_memory(make: RunMaker) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.start()
    run.wait_for("running")
    supervisor = run.supervisor(0)
    before = resident_kilobytes(supervisor)
    piece = b"x" * 60000  # below the line length limit, so that each connection may keep it
    for _round in range(20):
        strangers = [Stranger(run.lifeline) for _number in range(40)]
        for stranger in strangers:
            stranger.send(piece)
        assert resident_kilobytes(supervisor) - before < 16 * 1024
        for stranger in strangers:
            stranger.send(piece)
            stranger.close()
    assert resident_kilobytes(supervisor) - before < 16 * 1024
    (run.directory / "go").touch()
    run.wait_for("succeeded")


def test_rank_0_listens_on_its_node_address_only(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER)
    run.start(0)
    eventually(lambda: not is_refused(run.lifeline))
    port = run.lifeline[1]
    assert is_refused((f"{NETWORK}.200", port))
    assert is_refused(("127.0.0.1", port))


def test_newest_connection_with_the_token_replaces_the_old_one(make: RunMaker) -> None:
    """A node whose connection half broke reconnects; the old connection is closed, and the run continues."""
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.start()
    run.wait_for("running")
    second = Stranger(run.lifeline)
    second.check_in(run, 1)
    # The real node reconnects later, and the second connection is dropped.
    messages = [line.get("type") for line in second.lines]
    assert "stop" not in messages and "end" not in messages
    (run.directory / "go").touch()
    run.wait_for("succeeded")


def test_start_command_is_sent_again_after_a_reconnect(make: RunMaker) -> None:
    """A launcher on rank 0 starts the processes on the others."""
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.set_constant("RECONNECT_TIMEOUT", 120.0)  # reconnecting may be slow
    run.plans[0]["remote_start"] = True
    run.start(0)
    command = run.node(0) / "asked" / "1.json"
    for turn in ("first", "second"):
        eventually(lambda: not is_refused(run.lifeline))
        node1 = Stranger(run.lifeline)
        node1.check_in(run, 1)
        node1.say({"type": "ready", "launcher_log": ""})
        assert next(line for line in node1.lines if line.get("type") == "go"), turn
        if not command.parent.exists():
            command.parent.mkdir()
            command.write_text(json.dumps({"command": "orted"}))
        started = next(line for line in node1.lines if line.get("type") == "start")
        assert started["command"] == "orted", turn
        node1.close()
    assert run.stop(0)["stopped"] == [run.run_id]


# --- Lost nodes and processes -----------------------------------------------------------------------------------------


def wait_for_exit(run: Run, seconds: float, *excluded: int) -> None:
    """Wait until all processes of the run have exited, except for the excluded ones."""

    def has_ended() -> bool:
        return not set(run.processes()) - set(excluded)

    eventually(has_ended, seconds)


def test_frozen_peer_is_considered_lost_and_ends_itself_when_it_resumes(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, FOREVER, timeouts={"silence": 5.0})
    run.set_constant("HANG_GRACE_PERIOD", 600.0)  # otherwise its own guard would end it in the meantime
    run.start()
    run.wait_for("running")
    stopped_pid = run.supervisor(2)
    os.kill(stopped_pid, signal.SIGSTOP)
    run.wait_for("failed", 0, 1)
    assert "node2 is lost: no sign of life for 5 s" in run.result()["reason"]
    assert run.result()["first_node"] == "node2"
    os.kill(stopped_pid, signal.SIGCONT)
    wait_for_exit(run, 10.0)


def test_every_peer_notices_a_frozen_rank_0(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, FOREVER, timeouts={"silence": 5.0})
    run.set_constant("HANG_GRACE_PERIOD", 600.0)  # otherwise its own guard would end it meanwhile
    run.start()
    run.wait_for("running")
    stopped_pid = run.supervisor(0)
    os.kill(stopped_pid, signal.SIGSTOP)
    run.wait_for("failed", 1, 2)
    assert "node0 is lost: no sign of life for 5 s" in run.read(1, "status.json")["message"]
    os.kill(stopped_pid, signal.SIGCONT)
    wait_for_exit(run, 10.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_hung_supervisor_is_ended_with_its_job_on_its_own_node(make: RunMaker, rank: int) -> None:
    commands = [FOREVER, FOREVER]
    commands[rank] = [sys.executable, "-c", DETACHES_ITSELF]
    run = make(*commands, timeouts={"silence": 3.0})
    run.set_constant("HANG_GRACE_PERIOD", 3.0)
    run.start()
    eventually((run.directory / "ready1").exists)
    os.kill(run.supervisor(rank), signal.SIGSTOP)
    run.wait_until_gone()
    assert f"node{rank} is lost: no sign of life for 3 s" in run.read(1 - rank, "status.json")["message"]
    eventually(lambda: not {"token", "environment.json"} & {path.name for path in run.node(rank).iterdir()})
    assert not os.path.exists(run.plans[rank]["temporary_directory"])


def test_slow_supervisor_is_not_mistaken_for_a_hung_one(make: RunMaker) -> None:
    """This holds for long waits, and for many files to remove at its end."""
    fill = 'mkdir "$TMPDIR/d"; cd "$TMPDIR/d"; i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i + 1)); done'
    run = make(["/bin/sh", "-c", f"{fill}; sleep 4"], timeouts={"silence": 1.0})
    run.set_constant("HANG_GRACE_PERIOD", 2.0)
    run.start()
    run.wait_for("succeeded")
    assert_no_leftovers(run)


@pytest.mark.parametrize("rank", [0, 1, pytest.param(2, marks=pytest.mark.thorough)])
def test_killing_a_supervisor_ends_the_run_everywhere(make: RunMaker, rank: int) -> None:
    run = make(FOREVER, FOREVER, FOREVER)
    run.start()
    run.wait_for("running")
    os.kill(run.supervisor(rank), signal.SIGKILL)
    wait_for_exit(run, 10.0)
    survivors = {0, 1, 2} - {rank}
    assert all(run.state(survivor) == "failed" for survivor in survivors)
    assert f"node{rank} is lost" in run.read(min(survivors), "status.json")["message"]
    eventually(lambda: not {"token", "environment.json"} & {path.name for path in run.node(rank).iterdir()})


@pytest.mark.parametrize("rank", [0, 1])
def test_killing_a_launcher_ends_the_run_everywhere(make: RunMaker, rank: int) -> None:
    run = make(FOREVER, FOREVER)
    run.start()
    run.wait_for("running")
    pid = eventually(lambda: run.read(rank, "status.json")["launcher_pid"])
    os.kill(pid, signal.SIGKILL)
    run.wait_for("failed")
    result = run.result()
    assert result["first_node"] == f"node{rank}"
    assert f"the launcher on node{rank} ended with signal SIGKILL" in result["reason"]
    assert result["nodes"][rank]["report"]["exit_code"] == -signal.SIGKILL
    assert_no_leftovers(run)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_ends_the_run_everywhere_and_is_reported(make: RunMaker, rank: int) -> None:
    commands = [FOREVER, FOREVER]
    commands[rank] = [sys.executable, "-c", "raise ValueError('boom')"]
    run = make(*commands)
    run.start()
    run.wait_for("failed")
    report = run.result()["nodes"][rank]["report"]
    assert report["exit_code"] == 1
    assert report["ranks"][0]["error"] == "ValueError: boom"
    assert run.events()[-1] == f"the launcher on node{rank} ended with exit code 1"
    assert_no_leftovers(run)


@pytest.mark.parametrize(
    "command", [["/nowhere/python"], ["/etc/passwd"], ["/bin/echo", "\0"]], ids=["missing", "no program", "NUL"]
)
def test_a_command_that_cannot_be_started_ends_the_run(make: RunMaker, command: list[str]) -> None:
    run = make(FOREVER, command)
    run.start()
    run.wait_for("failed")
    report = run.result()["nodes"][1]["report"]
    assert report["exit_code"] == 127
    assert f"cannot start {command[0]}" in report["launcher_error"]
    assert_no_leftovers(run)


@pytest.mark.parametrize("rank", ONE_RANK)
def test_mount_lost_during_a_run_is_reported_in_events_and_result(make: RunMaker, rank: int) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    run.plans[rank]["command"] = ["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 3"]
    run.plans[rank]["mounts"] = ["/proc", "/nothing is here"]
    run.start()
    run.wait_for("running")
    output = f"the mount /nothing is here on node{rank} has died: nothing is mounted there anymore"
    eventually(lambda: output in run.events())
    (run.directory / "go").touch()
    run.wait_until_gone()
    reports = [node["report"] for node in run.result()["nodes"]]
    assert reports[rank]["mounts"] == {"/nothing is here": "nothing is mounted there anymore"}
    assert reports[1 - rank]["mounts"] == {}
    assert [event for event in run.events() if "mount" in event] == [output], (
        "told more than once, or of one that lives"
    )


SMI = """#!/bin/sh
cd "${0%/*}"
[ ! -e silent ] || { trap '' TERM; : > waiting; while :; do sleep 1; done; }
[ $# -gt 0 ] || { echo "| NVIDIA-SMI 550.54.15 |"; exit; }
echo "$(date '+%Y/%m/%d %T.%3N'), 0, 97, 72914, 81559, 64, 641.27, 700.00"
"""


def test_gpu_samples_are_recorded_without_holding_up_the_job(make: RunMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nvidia-smi stops answering and ignores SIGTERM, and if the node is not in UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    run = make(UNTIL_RELEASED)
    smi = run.directory / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    run.plans[0].update(gpu_samples=[str(smi), "--query-gpu=timestamp"], files={"gpus.csv": HEADER})
    run.set_constant("SNAPSHOT_AT", 2)
    run.start()
    samples, picture = run.node(0) / "gpus.csv", run.node(0) / "nvidia-smi.txt"
    eventually(lambda: samples.exists() and len(samples.read_text().splitlines()) > 5)
    assert picture.read_text() == "| NVIDIA-SMI 550.54.15 |\n", "once, and no sample is one of its lines"
    gpus = run_status.read(run.request(0, wait=0))["run"]["gpus"]
    assert gpus["devices"] == last_sample(samples.read_text())[1] and len(gpus["devices"]) == 1
    assert 0 <= gpus["age"] < 20 and abs(last_sample(samples.read_text())[0] - time.time()) < 60
    (run.directory / "silent").touch()
    eventually((run.directory / "waiting").exists)
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    assert_no_leftovers(run)
    assert run_status.read(run.request(0, wait=0))["run"]["gpus"] is None
    assert samples.read_text().startswith(HEADER)


IGNORES_TERM = ["/bin/sh", "-c", "trap '' TERM; touch heedless; while :; do sleep 0.05; done"]
FAILS = f"{UNTIL_RELEASED[2]}; echo 'Traceback (most recent call last):'; echo 'OSError: timed out'; exit 1"


@pytest.mark.parametrize("rank", ONE_RANK)
def test_rank_killed_by_its_supervisor_is_not_reported_as_the_cause(make: RunMaker, rank: int) -> None:
    """Not even if the real cause looks like a consequence of other ranks ending."""
    commands = [IGNORES_TERM, IGNORES_TERM]
    commands[rank] = ["/bin/sh", "-c", FAILS]
    run = make(*commands)
    run.start()
    eventually((run.directory / "heedless").exists)
    run.wait_for("running")
    (run.directory / "go").touch()
    run.wait_until_gone()
    result = run.result()
    reports = [node["report"] for node in result["nodes"]]
    assert reports[1 - rank]["exit_code"] == -signal.SIGKILL
    assert (reports[rank]["ended_by_us"], reports[1 - rank]["ended_by_us"]) == (False, True)
    failure = first_failure(result)
    assert failure is not None and (failure["node"], failure["error"]) == (f"node{rank}", "OSError: timed out")


LOST = "Unable to determine the device handle for GPU0: GPU is lost."
# Prints two GPUs, one if its file `missing` exists, and none if `lost` exists.
FAILING_SMI = f"""#!/bin/sh
cd "${{0%/*}}"
echo "2026/11/22 10:15:00.123, 0, 97, 72914, 81559, 64, 641.27"
[ ! -e lost ] || {{ echo "{LOST}"; exit 15; }}
[ -e missing ] || echo "2026/11/22 10:15:00.125, 1, 0, 4, 81559, 31, 70.02"
"""


def show_gpus(run: Run, rank: int) -> None:
    """Give a node GPUs that may fail."""
    smi = run.directory / "nvidia-smi"
    smi.write_text(FAILING_SMI)
    smi.chmod(0o755)
    run.plans[rank].update(gpu_samples=[str(smi), "--query-gpu=timestamp"], files={"gpus.csv": HEADER})


@pytest.mark.parametrize(
    ("marker", "error"), [("lost", LOST), ("missing", "nvidia-smi no longer shows GPU 1")], ids=["lost", "missing"]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_gpus_that_fail_during_a_run_are_reported_in_events_and_result(
    make: RunMaker, rank: int, marker: str, error: str
) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED)
    show_gpus(run, rank)
    run.start()
    run.wait_for("running")
    eventually(lambda: len((run.node(rank) / "gpus.csv").read_text().splitlines()) > 3)
    (run.directory / marker).touch()
    eventually(lambda: f"the GPUs on node{rank} are failing: {error}" in run.events())
    (run.directory / marker).unlink()
    eventually(lambda: f"the GPUs on node{rank} work again" in run.events())
    (run.directory / marker).touch()
    eventually(lambda: run.events().count(f"the GPUs on node{rank} are failing: {error}") == 2)
    (run.directory / "go").touch()
    run.wait_until_gone()
    reports = [node["report"] for node in run.result()["nodes"]]
    assert (reports[rank]["gpus"], reports[1 - rank]["gpus"]) == (error, "")


@pytest.mark.parametrize("rank", ONE_RANK)
def test_gpu_loss_that_ends_the_job_at_once_is_reported(make: RunMaker, rank: int) -> None:
    """The job ends long before the next sample."""
    commands = [FOREVER, FOREVER]
    commands[rank] = ["/bin/sh", "-c", f"{UNTIL_RELEASED[2]}; touch lost; echo RuntimeError: CUDA error; exit 1"]
    run = make(*commands, timeouts={"sample": 600.0})
    run.set_constant("FINAL_CHECK_TIMEOUT", 60.0)  # the awaited event arrives
    show_gpus(run, rank)
    run.start()
    run.wait_for("running")
    eventually(lambda: len((run.node(rank) / "gpus.csv").read_text().splitlines()) == 3)
    (run.directory / "go").touch()
    run.wait_until_gone()
    result = run.result()
    assert [node["report"]["gpus"] for node in result["nodes"]] == [LOST if n == rank else "" for n in range(2)]
    failure = first_failure(result)
    assert failure is not None and (failure["node"], failure["rank"]) == (f"node{rank}", rank)
    assert f"the GPUs on node{rank} are failing: {LOST}" in run.events()


def test_failed_job_does_not_wait_long_for_a_hung_nvidia_smi(make: RunMaker) -> None:
    run = make(["/bin/sh", "-c", f"{UNTIL_RELEASED[2]}; touch silent; exit 1"], timeouts={"sample": 600.0})
    smi = run.directory / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    run.plans[0].update(gpu_samples=[str(smi), "--query-gpu=timestamp"], files={"gpus.csv": HEADER})
    run.set_constant("FINAL_CHECK_TIMEOUT", 8.0)  # seconds for the program to start on a busy machine
    run.start()
    run.wait_for("running")
    eventually(lambda: len((run.node(0) / "gpus.csv").read_text().splitlines()) > 1)
    (run.directory / "go").touch()
    run.wait_until_gone()
    assert (run.directory / "waiting").exists(), "not queried"
    report = run.result()["nodes"][0]["report"]
    assert (report["gpus"], report["stuck"]) == ("", [])


def test_mount_probe_exits_with_the_errno() -> None:
    """Cover a mount that responds, and one that cannot be read."""
    for path, code in (("/proc", 0), ("/etc/passwd", errno.ENOTDIR)):
        assert subprocess.run([sys.executable, "-I", "-S", "-c", MOUNT_CHECK, path], check=False).returncode == code


def test_elastic_run_continues_while_enough_nodes_are_alive(make: RunMaker) -> None:
    run = make(UNTIL_RELEASED, UNTIL_RELEASED, FOREVER, min_nnodes=2)
    run.start()
    run.wait_for("running")
    os.kill(run.supervisor(2), signal.SIGKILL)
    eventually(lambda: any("the run continues with 2 of 3 nodes" in text for text in run.events()))
    (run.directory / "go").touch()
    run.wait_for("succeeded", 0, 1)
    assert [node["state"] for node in run.result()["nodes"]] == ["ended", "ended", "lost"]
    wait_for_exit(run, 10.0)


def test_elastic_run_continues_without_a_node_that_is_shut_down(make: RunMaker) -> None:
    """systemd sends SIGTERM when the machine is reclaimed or rebooted."""
    run = make(UNTIL_RELEASED, UNTIL_RELEASED, FOREVER, min_nnodes=2)
    run.start()
    run.wait_for("running")
    os.kill(run.supervisor(2), signal.SIGTERM)
    eventually(lambda: any("node2 was stopped (SIGTERM); the run continues" in text for text in run.events()))
    run.wait_for("stopped", 2)
    assert run.state(0) == run.state(1) == "running"
    (run.directory / "go").touch()
    run.wait_for("succeeded", 0, 1)
    assert_no_leftovers(run)


def test_stopping_an_elastic_run_on_one_node_ends_it_on_all(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, FOREVER, min_nnodes=1)
    run.start()
    run.wait_for("running")
    run.stop(2)
    run.wait_for("stopped")
    assert_no_leftovers(run)


@pytest.mark.parametrize(("rank", "min_nnodes"), [(2, 3), (0, 1)], ids=["below its minimum", "without rank 0"])
def test_elastic_run_ends_everywhere_once_it_cannot_continue(make: RunMaker, rank: int, min_nnodes: int) -> None:
    run = make(FOREVER, FOREVER, FOREVER, min_nnodes=min_nnodes)
    run.start()
    run.wait_for("running")
    os.kill(eventually(lambda: run.read(rank, "status.json")["launcher_pid"]), signal.SIGKILL)
    run.wait_for("failed")
    assert run.result()["first_node"] == f"node{rank}"
    assert run.events()[-1] == f"the launcher on node{rank} ended with signal SIGKILL"
    assert_no_leftovers(run)


# --- Ending -----------------------------------------------------------------------------------------------------------

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("ready0", "w").close()
time.sleep(600)
"""
DETACHES_ITSELF = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("ready1", "w").close()
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""
ORPHANS_CHILDREN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_stop_ends_processes_that_ignore_sigterm_or_detach(make: RunMaker, rank: int) -> None:
    run = make([sys.executable, "-c", IGNORES_SIGTERM], [sys.executable, "-c", DETACHES_ITSELF])
    run.start()
    eventually(lambda: (run.directory / "ready0").exists() and (run.directory / "ready1").exists())
    assert run.stop(rank) == {"changed": True, "stopped": [run.run_id]}
    run.wait_for("stopped")
    assert run.result()["state"] == "stopped"
    assert_no_leftovers(run)
    assert run.stop(rank) == {"changed": False, "stopped": []}


ORPHANS_A_STUBBORN_CHILD = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {IGNORES_SIGTERM!r}])
while not __import__("os").path.exists("ready0"): pass
sys.exit(3)
"""
# Like torchrun: one rank has failed, and the other does not exit on SIGTERM.
ENDS_ITS_RANKS = f"""
import os, subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", {IGNORES_SIGTERM!r}])
while not os.path.exists("ready0"): pass
print("W1122 10:00:00.000 7 torch/x.py:1] Sending process", rank.pid, "closing signal SIGTERM", flush=True)
rank.terminate()
rank.wait()  # for ever, where torchrun waits 30 s
print("  rank      : 1 (local_rank: 0)\\n  exitcode  : 3 (pid: 7)", flush=True)
os._exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("rank", ONE_RANK)
def test_other_nodes_do_not_wait_for_leftovers_of_a_failed_node(make: RunMaker, rank: int) -> None:
    commands = [FOREVER, FOREVER]
    commands[rank] = [sys.executable, "-c", ORPHANS_A_STUBBORN_CHILD]
    run = make(*commands)
    run.plans[rank]["timeouts"]["grace"] = 600.0
    run.start()
    peer_directory = str(run.node(1 - rank))
    eventually((run.directory / "ready0").exists)
    job = [pid for pid in run_alive.marked_processes(peer_directory) if "sleep" in command_line(pid)]
    eventually(lambda: not [pid for pid in job if "sleep" in command_line(pid)])
    assert run_alive.marked_processes(str(run.node(rank))), "it is still there"
    end_by_force(run)


@pytest.mark.parametrize("rank", ONE_RANK)
def test_stop_grace_overrides_torchruns_timeout_after_a_rank_fails(make: RunMaker, rank: int) -> None:
    commands = [FOREVER, FOREVER]
    commands[rank] = [sys.executable, "-c", ENDS_ITS_RANKS, "1"]
    run = make(*commands, timeouts={"grace": 4.0})
    run.set_constant("LAUNCHER_EXIT_GRACE_PERIOD", 2.0)  # the machine may be slow
    run.plans[rank]["rank_logs"] = "torchrun"
    run.start()
    run.wait_for("failed")
    result = run.result()
    assert (result["first_node"], result["reason"]) == (f"node{rank}", f"a rank on node{rank} has failed")
    report = result["nodes"][rank]["report"]
    assert report["exit_code"] == 1, "it has had its last word"
    assert [(item["rank"], item["exit_code"]) for item in report["ranks"]] == [(1, 3)]
    wait_for_exit(run, 10.0)


def test_torchrun_restarts_after_the_supervisor_kills_a_stubborn_rank(make: RunMaker) -> None:
    run = make([sys.executable, "-c", ENDS_ITS_RANKS, "0"])
    run.plans[0].update(rank_logs="torchrun", max_restarts=1)
    run.start()
    run.wait_for("succeeded")
    assert run.events() == ["the node is ready"]


# Like torchrun: it waits at its exit barrier for the other nodes after its own ranks have exited with 0.
WAITS_FOR_OTHERS = """
import os, subprocess, time
attempt = os.environ["MUSTER_RUN_DIRECTORY"] + "/ranks/x/attempt_0/0"
os.makedirs(attempt)
os.utime(attempt, (time.time() + 3600, time.time() + 3600))  # the clock is set back
subprocess.run(["sh", "-c", "while [ ! -e ended ]; do sleep 0.05; done"], env={**os.environ, "LOCAL_RANK": "0"})
while not os.path.exists("go"): time.sleep(0.05)
"""


@pytest.mark.parametrize(("logs", "rank"), [("torchrun", 0), ("torchrun", 1), ("ranks", 0)])
def test_rank_that_exits_while_others_run_is_named(make: RunMaker, logs: str, rank: int) -> None:
    commands = [UNTIL_RELEASED, UNTIL_RELEASED]
    commands[rank] = [sys.executable, "-c", WAITS_FOR_OTHERS] if logs == "torchrun" else UNTIL_RELEASED
    run = make(*commands)
    run.set_constant("RANK_CHECK_INTERVAL", 0.05)
    run.set_constant("RANK_END_NOTICE_TIMEOUT", 0.1)
    run.plans[rank]["rank_logs"] = logs
    run.start()
    run.wait_for("running")

    def status(number: int) -> dict[str, Any]:
        read: dict[str, Any] = run_status.read(run.request(number, wait=0))["run"]
        return read

    assert [status(number)["ended_ranks"] for number in (0, 1)] == [{}, {}]
    if logs == "torchrun":
        (run.directory / "ended").touch()
    else:
        muster_rank.write_exit(str(make_directory(run.node(rank) / "ranks" / "0") / "exit.json"), rank, 0)
    assert re.fullmatch(
        rf"rank {rank} on node{rank} exited with code 0 \d+ s ago; rank {1 - rank} on node{1 - rank} still runs",
        eventually(lambda: run.events()[1:])[0],
    )
    assert set(eventually(lambda: status(rank)["ended_ranks"])) == {str(rank)}
    assert status(1 - rank)["ended_ranks"] == {}
    assert eventually(lambda: run.read(0, "status.json")["exited"]).startswith(f"rank {rank} on node{rank} exited")
    (run.directory / "go").touch()
    run.wait_until_gone()


def make_directory(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_processes_left_behind_by_a_job_are_ended(make: RunMaker) -> None:
    run = make([sys.executable, "-c", ORPHANS_CHILDREN], ["/bin/true"])
    run.start()
    run.wait_for("succeeded")
    assert_no_leftovers(run)


@pytest.mark.parametrize("rank", ONE_RANK)
def test_killing_a_supervisor_ends_detached_children(make: RunMaker, rank: int) -> None:
    commands = [FOREVER, FOREVER]
    commands[rank] = [sys.executable, "-c", DETACHES_ITSELF]
    run = make(*commands)
    run.start()
    eventually((run.directory / "ready1").exists)
    os.kill(run.supervisor(rank), signal.SIGKILL)
    wait_for_exit(run, 10.0)
    assert not os.path.exists(run.plans[rank]["temporary_directory"])


def test_replacing_start_stops_the_old_run_first(make: RunMaker) -> None:
    old, new = make(FOREVER, FOREVER), make(FOREVER)
    old.start()
    old.wait_for("running")
    (reply,) = new.start(replace=True)
    assert reply["stopped"] == [old.run_id]
    old.wait_until_gone()
    assert old.result()["state"] == "stopped"
    new.wait_for("running")
    (reply,) = new.start(replace=True)
    assert not reply["changed"], "the run that is meant is not replaced by itself"


def test_stop_without_runs_changes_nothing(make: RunMaker) -> None:
    run = make(FOREVER)
    assert run.stop() == {"changed": False, "stopped": []}


def test_lifeline_port_in_use_is_reported(make: RunMaker) -> None:
    run = make(FOREVER, FOREVER, timeouts={"start": 2.0})
    with socket.create_server(run.lifeline):
        run.start(0)
        run.wait_for("failed", 0)
    address, port = run.lifeline
    assert f"node0 cannot listen on {address} port {port}: " in run.result()["reason"]
    run.wait_until_gone()
