"""Jobs that are working but silent for a long time: none is reported as a hang. Times are compressed, supervisors are
real.

test_job_that_is_silent_for_an_hour_is_not_reported does the same in real time, with the usual limits. It runs only with
MUSTER_SILENT_HOUR=1, or for another time, such as MUSTER_SILENT_HOUR=1500 seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit import supervised
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

NETWORK = supervised.own_network(173)
HANG = 1.0  # launch_hang_timeout
SILENCE = 6 * HANG  # seconds for which the jobs are silent
HOUR = "MUSTER_SILENT_HOUR"
DISTRIBUTED = """
import os, time
def all_reduce(step):
    open("arrived-%s-%d" % (os.environ["NODE_RANK"], step), "w").close()
    while sum(os.path.exists("arrived-%d-%d" % (rank, step)) for rank in range(2)) < 2:
        time.sleep(0.01)
"""
SCRIPT = """
import os, sys, time
sys.path.insert(0, "site-packages")
from torch.distributed import fake
kind, seconds, rank = sys.argv[1], float(sys.argv[2]), int(os.environ["NODE_RANK"])
end = time.monotonic() + seconds
def compile_model():
    while time.monotonic() < end:
        [number * number for number in range(1000)]
def evaluate():
    number = 0
    while not os.path.exists("last-%d" % (number - 1)):
        if rank == 0 and time.monotonic() >= end:
            open("last-%d" % number, "w").close()
        batch(number, number % 80)  # each wait has another stack, so two that are seen seconds apart are not one wait
        number += 1
def batch(number, depth):
    if depth:
        batch(number, depth - 1)
    else:
        time.sleep(0.04)  # so slowly that the depth does not repeat between two collections of stacks
        fake.all_reduce(number)
        sum(range(50000))
def save():
    while time.monotonic() < end:
        with open("checkpoint-%d" % rank, "wb") as stream:
            for _part in range(20):
                stream.write(bytes(200_000))
                stream.flush()
                time.sleep(0.01)
def load():
    number = 0
    while time.monotonic() < end:
        read(number % 12)
        number += 1
def read(depth):
    read(depth - 1) if depth else time.sleep(0.05)
print("begins", flush=True)
{"compile": compile_model, "evaluate": evaluate, "save": save, "load": load}[kind]()
print("ends", flush=True)
"""
KINDS = ("compile", "evaluate", "save", "load")
RunMaker = Callable[[str, float], Run]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunMaker]:
    """Make runs of two nodes with a kind of job that is silent for a few seconds."""
    monkeypatch.setattr(supervised, "NETWORK", NETWORK)
    package = tmp_path / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").touch()
    (package / "fake.py").write_text(DISTRIBUTED)
    (tmp_path / "job.py").write_text(SCRIPT)
    runs: list[Run] = []

    def maker(kind: str, seconds: float) -> Run:
        commands = [[sys.executable, str(tmp_path / "job.py"), kind, str(seconds)]] * 2
        timeouts = {"hang": HANG if seconds < 60 else 600.0}
        runs.append(make_run(tmp_path, commands, timeouts, lifeline_port=free_port(), master_port=free_port()))
        return runs[-1]

    yield maker
    for run in runs:
        end_by_force(run)


def hangs_reported(run: Run) -> list[str]:
    return [text for text in run.events() if text.startswith("no output for")]


@pytest.mark.parametrize("kind", KINDS)
def test_silent_job_that_works_is_not_reported(make: RunMaker, kind: str) -> None:
    run = make(kind, SILENCE)
    run.set_constant("HANG_CONFIRM_INTERVAL", 2.0)
    run.set_constant("HANG_GAP_FACTOR", 0)
    run.set_constant("LEAST_HANG_TIMEOUT", HANG)
    run.set_constant("PROGRESS_CHECK_INTERVAL", 0.1)
    run.set_constant("IO_CHECK_AGE", 0.2)
    run.start()
    assert run.result()["state"] == "succeeded"
    assert hangs_reported(run) == []


@pytest.mark.thorough
@pytest.mark.timeout(0)
@pytest.mark.skipif(HOUR not in os.environ, reason=f"takes an hour; set {HOUR}=1 to run it")
@pytest.mark.parametrize("kind", KINDS)
def test_job_that_is_silent_for_an_hour_is_not_reported(make: RunMaker, kind: str) -> None:
    seconds = 3600.0 if os.environ[HOUR] == "1" else float(os.environ[HOUR])
    run = make(kind, seconds)
    run.start()
    begin = time.monotonic()
    eventually(lambda: run.read(0, "result.json"), 2 * seconds)
    assert time.monotonic() - begin > seconds
    assert run.result()["state"] == "succeeded"
    assert hangs_reported(run) == []
