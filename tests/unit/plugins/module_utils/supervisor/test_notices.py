"""Notices that all ranks must save, with real supervisors and processes on this machine."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import save as run_save
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.ranks import (
    Member,
    catches,
    rank_pids,
)
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

# A rank that saves on SIGTERM, which takes a while, and exits with 0. Counts the signals that it receives.
SAVES_AND_ENDS = """
import os, pathlib, signal, time
directory = pathlib.Path(os.environ["MUSTER_RUN_DIRECTORY"])
received = []
signal.signal(signal.SIGTERM, lambda *_: received.append(1))
signal.signal(signal.SIGUSR1, lambda *_: (directory / "usr1").touch())
(directory / "ready").touch()
while not received:
    time.sleep(0.02)
until = pathlib.Path("hold")
while until.exists():
    time.sleep(0.02)
(directory / "saved").write_text(str(len(received)))
"""
# A rank that checks for the notice file at each step, saves, and removes the file.
READS_FILE = """
import json, os, pathlib, time
directory = pathlib.Path(os.environ["MUSTER_RUN_DIRECTORY"])
file = pathlib.Path(os.environ["MUSTER_NOTICE_FILE"])
(directory / "ready").touch()
while True:
    if file.exists():
        notice = json.loads(file.read_text())
        (directory / f"saved{notice['number']}").write_text(json.dumps(notice))
        file.unlink()
        if notice["stop"]:
            break
    time.sleep(0.02)
"""
WITHOUT_HANDLER = """
import os, pathlib, time
(pathlib.Path(os.environ["MUSTER_RUN_DIRECTORY"]) / "ready").touch()
while True:
    time.sleep(0.02)
"""

RunMaker = Callable[..., Run]


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[RunMaker]:
    """Make runs of nodes that start these programs, and clean up after them."""
    runs: list[Run] = []

    def maker(*programs: str, notices: dict[str, Any] | None = None, price: float | None = None, **options: Any) -> Run:
        ports = {"lifeline_port": free_port(), "master_port": free_port()}
        run = make_run(
            tmp_path, [python(program) for program in programs], **{**ports, "first_address": 101, **options}
        )
        for plan in run.plans:
            plan["working_directory"] = str(tmp_path)
            plan["notices"].update({"metadata_interval": 0.1, **(notices or {})})
            for node in plan["nodes"]:
                node["price_per_hour"] = price
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def start(run: Run) -> None:
    """Start all nodes, and wait until each rank is ready for signals."""
    run.start()
    for rank in range(len(run.plans)):
        eventually((run.node(rank) / "ready").exists)


def request_save(run: Run, stop: bool = False, rank: int = 0) -> Any:
    return run_save.save(run.request(rank, stop=stop))


def test_save_and_stop_reaches_the_ranks_of_all_nodes_and_the_run_is_interrupted(make: RunMaker) -> None:
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS)
    start(run)
    reply = request_save(run, stop=True)
    assert reply["changed"] and reply["run_id"] == run.run_id
    result = run.result()
    assert result["state"] == "interrupted"
    assert result["reason"] == "requested to save and end"
    assert (result["notice"]["source"], result["notice"]["ends"]) == ("request", True)
    assert [node["report"]["exit_code"] for node in result["nodes"]] == [0, 0]
    for rank in (0, 1):
        run.wait_for("interrupted", rank)
        assert (run.node(rank) / "saved").read_text() == "1", "the signal was sent once"
        assert f"node{rank}: wrote the notice file and sent SIGTERM to 1 rank" in run.events()
    assert reply["events"][0] == "requested to save and end"
    run.wait_until_gone()


def test_save_without_stop_lets_the_run_continue(make: RunMaker) -> None:
    run = make(READS_FILE, READS_FILE)
    start(run)
    reply = request_save(run)
    assert "node1: wrote the notice file for 1 rank" in reply["events"], "SIGTERM would end the job"
    for rank in (0, 1):
        notice = json.loads(eventually(functools.partial(read, run.node(rank) / "saved1")))
        assert (notice["stop"], notice["reason"]) == (False, "requested to save and continue")
    eventually(lambda: sum("it has saved" in text for text in run.events()) == 2)
    assert (run.state(0), run.state(1)) == ("running", "running")
    request_save(run, stop=True)
    assert json.loads(eventually(lambda: read(run.node(1) / "saved2")))["stop"] is True
    assert run.result()["state"] == "interrupted"


def is_missing(path: Path) -> bool:
    return not path.exists()


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_request_on_a_node_other_than_the_first_changes_nothing(make: RunMaker) -> None:
    run = make(WITHOUT_HANDLER, WITHOUT_HANDLER)
    start(run)
    assert request_save(run, rank=1) == {"changed": False, "run_id": "", "events": []}


def test_drain_file_on_node_1_reaches_the_rank_on_node_0(make: RunMaker) -> None:
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS)
    start(run)
    (run.node(1) / "drain").touch()
    assert run.result()["state"] == "interrupted"
    assert run.result()["notice"]["node"] == "node1"
    assert (run.node(0) / "saved").exists()
    assert not (run.node(1) / "drain").exists()


def test_signal_is_never_sent_to_a_rank_without_a_handler(make: RunMaker) -> None:
    run = make(WITHOUT_HANDLER, SAVES_AND_ENDS, notices={"signal": "SIGUSR1"})
    start(run)
    request_save(run)
    eventually(lambda: (run.node(1) / "usr1").exists())
    text = "node0: wrote the notice file and sent SIGUSR1 to 0 of 1 rank; 1 without a handler for it was left alone"
    eventually(lambda: text in run.events())
    assert (run.state(0), run.state(1)) == ("running", "running"), "SIGUSR1 would have ended it"


def test_ranks_without_a_handler_are_ended_after_the_grace_period(make: RunMaker) -> None:
    run = make(WITHOUT_HANDLER, WITHOUT_HANDLER, notices={"grace": 0.5})
    start(run)
    request_save(run, stop=True)
    result = run.result()
    assert result["state"] == "interrupted"
    assert all(node["report"]["ended_by_us"] for node in result["nodes"])


def test_rank_that_fails_after_the_notice_does_not_end_the_others(make: RunMaker, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    fails = SAVES_AND_ENDS.replace('until = pathlib.Path("hold")', "raise SystemExit(3)")
    run = make(SAVES_AND_ENDS, fails)
    start(run)
    request_save(run, stop=True)
    eventually(lambda: any("the other nodes may still be saving" in text for text in run.events()))
    assert not (run.node(0) / "saved").exists() and run.state(0) == "running"
    (tmp_path / "hold").unlink()
    result = run.result()
    assert result["state"] == "interrupted"
    assert (run.node(0) / "saved").exists()
    assert [node["report"]["exit_code"] for node in result["nodes"]] == [0, 3]


def test_notice_during_a_save_sends_no_second_signal(make: RunMaker, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS)
    start(run)
    request_save(run, stop=True)
    for rank in (0, 1):
        (run.node(rank) / "drain").touch()
        eventually(functools.partial(is_missing, run.node(rank) / "drain"))
    eventually(lambda: run.events().count("requested to save and end") == 3)
    (tmp_path / "hold").unlink()
    assert run.result()["state"] == "interrupted"
    assert [(run.node(rank) / "saved").read_text() for rank in (0, 1)] == ["1", "1"]


def test_stop_during_a_save_is_a_stop(make: RunMaker, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    run = make(SAVES_AND_ENDS)
    start(run)
    request_save(run, stop=True)
    run.stop()
    assert run.result()["state"] == "stopped"


def test_time_limit_warns_and_ends_the_run_before_it(make: RunMaker) -> None:
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS, notices={"time_limit": 5.0})
    run.start()
    result = run.result()
    assert result["state"] == "interrupted"
    assert result["reason"].startswith("launch_time_limit (")
    assert result["ended"] - result["started"] >= 4.4, "not before it must save"
    assert [text for text in run.events() if "of launch_time_limit" in text]


def test_cost_limit_ends_the_run(make: RunMaker) -> None:
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS, notices={"cost_limit": 2.0}, price=1800.0)  # 2.0 after 2 s
    run.start()
    result = run.result()
    assert result["state"] == "interrupted"
    assert result["reason"] == "launch_cost_limit (2 USD) has been reached"


def test_run_that_hangs_longer_than_the_stall_limit_saves_and_ends(make: RunMaker) -> None:
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS, notices={"stall_limit": 60})
    hub_notices = "program/_supervisor/notices/hub_notices.py"
    noted = "(now if self.hang_since is None else self.hang_since) if hangs else None"
    assert noted in run.sources[hub_notices]
    run.sources[hub_notices] = run.sources[hub_notices].replace(noted, "-99.0")
    run.start()
    result = run.result()
    assert (result["state"], result["reason"]) == ("interrupted", "the run has hung for 60 s (launch_stall_limit)")


def test_elastic_run_continues_when_a_dispensable_node_gets_a_notice(make: RunMaker, service: Any) -> None:
    run = make(WITHOUT_HANDLER, WITHOUT_HANDLER, min_nnodes=1, launcher="torchrun", rdzv_backend="c10d")
    run.plans[1]["notices"]["metadata"] = {"gcp": service.address}
    service.replies["/computeMetadata/v1/instance/preempted"] = (200, "TRUE")
    start(run)
    eventually(lambda: "node1: Google Cloud will stop it in 30 s (preemption)" in run.events())
    eventually(lambda: read(run.node(0) / "notice.json"))
    assert json.loads(read(run.node(0) / "notice.json"))["stop"] is False
    assert run.state(0) == "running"


# --- Metadata services ------------------------------------------------------------------------------------------------


class MetadataServer:
    """A metadata service: replies by path; 404 for others; hangs while `release` is not set, if it `hangs`."""

    def __init__(self) -> None:
        outer = self
        self.replies: dict[str, tuple[int, str]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.hangs = False
        self.release = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.command, self.path, dict(self.headers)))
                if outer.hangs:
                    outer.release.wait(120)
                status, body = outer.replies.get(self.path, (404, ""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_PUT = do_GET

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.release.set()
    server.server.shutdown()
    server.server.server_close()


def test_spot_notice_of_node_1_reaches_the_rank_on_node_0(make: RunMaker, service: MetadataServer) -> None:
    run = make(SAVES_AND_ENDS, SAVES_AND_ENDS)
    run.plans[1]["notices"]["metadata"] = {"ec2": service.address}
    service.replies["/latest/api/token"] = (200, "the-token")
    start(run)
    eventually(lambda: len(service.requests) > 4)  # 404 so far
    assert run.state(0) == "running"
    service.replies["/latest/meta-data/spot/instance-action"] = (
        200,
        '{"action": "terminate", "time": "2019-01-01T00:00:00Z"}',
    )
    result = run.result()
    assert result["state"] == "interrupted"
    assert result["reason"] == "node1: Amazon EC2 will terminate it in 1 s (spot interruption)"
    assert (run.node(0) / "saved").exists() and (run.node(1) / "saved").exists()
    assert {
        headers.get("X-aws-ec2-metadata-token") for method, _path, headers in service.requests if method == "GET"
    } == {"the-token"}
    run.wait_until_gone()


def test_metadata_service_that_hangs_delays_nothing(make: RunMaker, service: MetadataServer) -> None:
    service.hangs = True
    run = make(SAVES_AND_ENDS, notices={"metadata": {"ec2": service.address, "azure": "127.0.0.1:1"}})
    start(run)
    eventually(lambda: service.requests)
    request_save(run, stop=True)
    assert run.result()["state"] == "interrupted"
    run.wait_until_gone()


# --- Which processes are ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        # torchrun, two ranks with data loaders
        ({2: (1, None, True), 3: (2, 0, False), 4: (2, 1, False), 5: (3, 0, False), 6: (4, 1, False)}, [3, 4]),
        # a shell started by a rank, then the rank, then a helper process of its logger
        ({2: (1, None, True), 3: (2, 0, True), 4: (3, 0, False), 5: (4, 0, False)}, [4]),
        # Lightning: the process of rank 0 starts that of rank 1
        ({2: (1, None, False), 3: (2, 1, False), 4: (2, None, False), 5: (3, 1, False)}, [2, 3]),
        # a container: the ranks are the engine's children, and the launcher has none
        ({2: (1, None, True), 7: (9, 0, False), 8: (7, 0, False)}, [7]),
        ({}, []),
    ],
)
def test_rank_processes_are_distinguished_from_launchers_and_workers(
    members: dict[int, tuple[int, int | None, bool]], expected: list[int]
) -> None:
    assert rank_pids({pid: Member(*member) for pid, member in members.items()}) == expected


def test_handler_of_a_process_is_recognized() -> None:
    import signal

    previous = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert catches(os.getpid(), signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        assert not catches(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, previous)
    assert not catches(2**22 + 1, signal.SIGTERM)
