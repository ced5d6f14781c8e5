"""Hangs of gloo jobs under every launcher, on this machine: the report names the rank and its line in time."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_result
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit import supervised
from tests.unit.supervised import TIMEOUTS, Run, end_by_force, eventually, free_port, make_job

torch = pytest.importorskip("torch")

NETWORK = supervised.own_network(172)
SCRIPT = Path(__file__).parents[4] / "jobs" / "hangs.py"
HANG = 5.0  # launch_hang_timeout
GLOO = 40  # torch's own timeout, in which the hang is reported before
RANKS = 4
LONGEST = 900.0  # seconds for four ranks to import torch on a busy machine
# Number of nodes, and of ranks on each: accelerate and env start the same number of ranks on each node, and mpirun
# needs a host for each.
LAUNCHERS = {"torchrun": (2, 2), "deepspeed": (2, 2), "accelerate": (2, 2), "mpirun": (1, 4), "env": (4, 1)}
LAST = RANKS - 1


def line_of(text: str) -> int:
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# The rank to name, how the hang report describes it, and the verdict after torch's timeout.
KINDS: dict[str, tuple[int, str, str]] = {
    "loop": (LAST, rf"is in load \(hangs\.py:{line_of('time.sleep(0.01)')}\)", "it was in load"),
    "sleep": (0, rf"is in validate \(hangs\.py:{line_of('time.sleep(3600)')}\)", "it was in validate"),
    "uneven": (LAST, r"waits in barrier \(hangs\.py:\d+\)", "it was waiting in barrier"),
    "lock": (
        LAST,
        rf"is in \w+, called by load_with_worker \(hangs\.py:{line_of('next(batches)')}\), and its worker process in",
        "it was in ",
    ),
    "stopped": (LAST, r"is stopped \(process state T", "it was stopped"),
    "exit": (LAST, "", "had already ended with exit code 0"),  # gloo notices that its connection was closed
}
CASES = [(launcher, kind) for launcher in LAUNCHERS for kind in KINDS]
FEW = (("torchrun", "loop"), ("env", "uneven"))  # test_hangs.py has a worker that holds a lock


def make_torch_run(directory: Path, launcher: str, kind: str, script: Path = SCRIPT, timeout: int = GLOO) -> Run:
    """Return a run of four ranks, planned like a user's run, on addresses of this machine."""
    number, slots = LAUNCHERS[launcher]
    job = make_job(
        launcher=launcher,
        script=str(script),
        args=(kind, str(timeout)),
        interpreter=sys.executable,
        master_port=free_port(),
        lifeline_port=free_port(),
    )
    hosts = [HostSpec(f"node{n}", f"{NETWORK}.{n + 1}", slots) for n in range(number)]
    table = get_launcher(job).order(build_rank_table(hosts))
    facts = {
        "interpreter": sys.executable,
        "interface": "lo",
        "runs_directory": str(directory),
        "working_directory": {"path": str(directory)},
    }
    plans: list[Any] = [build_node_plan(job, table, node, facts) for node in table.nodes]
    for plan in plans:
        plan["timeouts"] = {**TIMEOUTS, "hang": HANG}
        plan["path_prefix"] = os.path.dirname(sys.executable)
    return Run(directory, plans)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    monkeypatch.setattr(supervised, "NETWORK", NETWORK)
    runs: list[Run] = []
    yield runs
    for run in runs:
        end_by_force(run)


def output(run: Run) -> str:
    logs = [path for rank in range(len(run.plans)) for path in run.node(rank).rglob("*.log")]
    return "\n".join(f"{path}\n{read_tail(str(path))}" for path in logs)


def start_with_short_limits(run: Run) -> None:
    run.set_constant("HANG_CONFIRM_INTERVAL", 1.0)
    run.set_constant("HANG_GAP_FACTOR", 0)
    run.set_constant("LEAST_HANG_TIMEOUT", HANG)
    run.set_constant("PROGRESS_CHECK_INTERVAL", 0.2)
    run.start(environment={"OMP_NUM_THREADS": "1"})
    run.wait_for("running", seconds=LONGEST)


def reported_hang(run: Run, described: str, title: str) -> dict[str, Any]:
    """Return the description of the planted hang. On a busy machine, importing torch takes longer than the limit."""

    def reported() -> list[str]:
        """Return whether the planted hang was reported, or the run has ended without a report."""
        hangs = [text for text in run.events() if text.startswith("no output for") and re.search(described, text)]
        return hangs or (run.events() if run.read(0, "result.json") else [])

    text = eventually(reported, LONGEST)[-1]
    moment = time.time()
    assert text.startswith("no output for"), f"{run.events()}\n{output(run)}"
    hang: dict[str, Any] = eventually(lambda: run_status.read(run.request(0, wait=0))["run"]["hang"])
    print(f"{title}: {moment - hang['since'] - HANG:.1f} s after the limit: {text}")  # shown by pytest -s
    return hang


@pytest.mark.parametrize(
    ("launcher", "kind"), [case if case in FEW else pytest.param(*case, marks=pytest.mark.thorough) for case in CASES]
)
def test_hang_names_the_rank_and_its_line(tmp_path: Path, runs: list[Run], launcher: str, kind: str) -> None:
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed (Debian and Ubuntu: openmpi-bin)")
    rank, described, verdict = KINDS[kind]
    run = make_torch_run(tmp_path, launcher, kind)
    start_with_short_limits(run)
    runs.append(run)
    if described:
        hang = reported_hang(run, rf"rank {rank} on node\d+ {described}", f"{launcher} {kind}")
        assert hang["awaited_ranks"] == [rank], hang
    result = validate_result(eventually(lambda: run.read(0, "result.json"), LONGEST))
    assert result is not None
    failure = verdict_from_hub(run.plans[0], result)["first_failure"]
    assert failure is not None and failure["rank"] == rank, failure
    assert verdict in failure["error"]
    run.wait_until_gone(LONGEST)
