"""The simulation of a large run, at a small size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures import verdict
from tests.bench import bench_scale
from tests.bench.forked_nodes import forked_nodes
from tests.unit.supervised import WORKER, compiled_folder, end_by_force, eventually, run_at

pytestmark = pytest.mark.one_core

NETWORK = f"127.{WORKER + 100}"
# Forks a node without a supervisor or a namespace. If mount, whose return code is the argument, succeeds, a second fork
# fails; otherwise the first node has exited before the input ends.
FORK_NODES = """
import atexit, os, signal, sys
from types import SimpleNamespace
from tests.bench import forked_nodes

mounted, original = int(sys.argv[1]), os.fork

def fork_once():
    os.fork = fail
    return original()

def fail():
    raise BlockingIOError("no more processes")

def lines():
    yield "[]"
    if mounted:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    else:
        yield "[]"

atexit.register(print, "end of the process", flush=True)
os.fork, os.geteuid = fork_once, lambda: 0
forked_nodes.LIBC = SimpleNamespace(unshare=lambda *_: 0, setns=lambda *_: 0, mount=lambda *_: mounted)
forked_nodes.supervise = lambda _arguments: (signal.alarm(30), signal.pause())
forked_nodes.fork_nodes(lines(), os.open(os.devnull, os.O_RDONLY))
"""


def fork_nodes(mounted: int) -> tuple[list[str], str]:
    """Return the output and the errors of FORK_NODES."""
    command = [sys.executable, "-c", FORK_NODES, str(mounted)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    completed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    return completed.stdout.splitlines(), completed.stderr


def test_simulation_ends_all_nodes_and_blames_the_failed_one(tmp_path: Path) -> None:
    figures = bench_scale.measure(tmp_path, 12, quiet=0.0001, network=NETWORK)
    assert 0 < figures.last_job <= figures.last_supervisor  # the simulation itself checks status and verdict
    lines = bench_scale.table([12], [figures]).splitlines()
    assert [line[:62].strip() for line in lines] == ["nodes", *(title for title, _form in bench_scale.ROWS.values())]


def test_simulation_fails_if_the_verdict_names_another_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "verdict_from_hub", lambda *_: {"first_failure": {"node": "node1"}})
    with pytest.raises(AssertionError, match="node1"):
        bench_scale.measure(tmp_path, 3, quiet=0.0001, network=NETWORK)


def test_forked_node_runs_the_real_supervisor_and_ends_with_the_process_that_forked_it(tmp_path: Path) -> None:
    run = run_at(bench_scale.addresses(2, NETWORK), tmp_path, [bench_scale.JOB] * 2)
    try:
        with forked_nodes(f"{compiled_folder().name}/program") as forked:
            pids = [bench_scale.fork_node(run, rank, forked) for rank in (0, 1)]
            run.wait_for("running")
            jobs = bench_scale.all_jobs(pids)
            assert run.read(1, "status.json")["report"] is None
            if os.geteuid() == 0:
                own_pids = [run.read(rank, "supervisor.json")["pid"] for rank in (0, 1)]
                assert own_pids == [1, 1], "each is alone in its namespace"
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        if os.geteuid() == 0:
            eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in jobs))
    finally:
        end_by_force(run)


def test_forked_nodes_end_if_another_cannot_be_forked() -> None:
    (pid, end), errors = fork_nodes(mounted=0)
    assert "no more processes" in errors and end == "end of the process"
    assert not Path(f"/proc/{pid}").exists()


def test_forked_node_whose_proc_cannot_be_mounted_does_not_continue_as_the_process_that_forked_it() -> None:
    output, errors = fork_nodes(mounted=-1)
    assert len(output) == 2 and output[-1] == "end of the process", output
    assert errors.count("OSError: ") == 1


def test_node_addresses_are_distinct() -> None:
    assert len(set(bench_scale.addresses(512))) == 512
