# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles of a running gloo job with the real torch.profiler: ranks, waits, timeline; the job continues."""

from __future__ import annotations

import base64
import gzip
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import dispatch
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from ansible_collections.muster.training.plugins.plugin_utils._profile.summary import summarize, validate_ranks
from ansible_collections.muster.training.plugins.plugin_utils._profile.timeline import RankTrace, merge_traces
from tests.unit import supervised
from tests.unit.supervised import TIMEOUTS, Run, end_by_force, eventually, free_port, make_job

torch = pytest.importorskip("torch")

NETWORK = supervised.own_network(173)
SCRIPT = Path(__file__).parents[4] / "jobs" / "profiled.py"
RANKS, LATE, STEPS = 4, 2, 3
LONGEST = 400.0  # seconds for four ranks to import torch on a busy machine


def make_torch_run(directory: Path, script: Path, args: tuple[str, ...], number: int = RANKS) -> Run:
    """Return a run with one rank per node, planned like a user's run, on addresses of this machine."""
    ports = {"master_port": free_port(), "lifeline_port": free_port()}
    job = make_job(launcher="env", script=str(script), args=args, interpreter=sys.executable, **ports)
    hosts = [HostSpec(f"node{index}", f"{NETWORK}.{index + 1}", 1) for index in range(number)]
    table = get_launcher(job).order(build_rank_table(hosts))
    facts = {
        "interpreter": sys.executable,
        "interface": "lo",
        "runs_directory": str(directory),
        "working_directory": {"path": str(directory)},
    }
    plans: list[Any] = [build_node_plan(job, table, node, facts) for node in table.nodes]
    for plan in plans:
        plan["timeouts"] = {**plan["timeouts"], **TIMEOUTS, "start": LONGEST}
    return Run(directory, plans)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = make_torch_run(tmp_path, SCRIPT, (str(LATE), "0.8", str(tmp_path / "over")))
    yield run
    end_by_force(run)


def profile_nodes(run: Run, **request: Any) -> dict[str, Any]:
    """Return the replies of all nodes, which are queried at the same time, as in a playbook."""
    replies: dict[str, Any] = {}

    def profile_node(number: int) -> None:
        fields = {"steps": STEPS, "ranks": [], "seconds": LONGEST, **request}
        replies[run.plans[number]["node"]["name"]] = dispatch.main(run.request(number, operation="profile", **fields))

    threads = [threading.Thread(target=profile_node, args=(number,)) for number in range(len(run.plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def fetch_trace(run: Run, number: int, reply: dict[str, Any], target: Path) -> None:
    """Fetch the trace of the only rank of a node in pieces, and let the node remove it."""
    request = run.request(number, operation="profile_piece", id=reply["id"], pid=reply["ranks"][0]["pid"])
    with target.open("wb") as stream:
        last = False
        while not last:
            piece = dispatch.main({**request, "offset": stream.tell()})
            stream.write(base64.b64decode(piece["data"]))
            last = piece["last"]
    dispatch.main({**request, "offset": -1})


def last_step(run: Run, rank: int) -> int:
    """Return the newest step that a rank has printed; 0 before the first step."""
    lines = [line for line in read_tail(str(run.node(rank) / "launcher.log")).splitlines() if line.startswith("step")]
    return int(lines[-1].split()[1].rstrip(":")) if lines else 0


@pytest.mark.thorough  # tests/unit/playbooks/test_profile.py profiles two ranks
def test_all_ranks_of_a_running_job_are_profiled_and_it_continues(run: Run, tmp_path: Path) -> None:
    run.start()
    eventually(lambda: all(last_step(run, rank) > 0 for rank in range(RANKS)), LONGEST)
    replies = profile_nodes(run)
    nodes = {name: validate_ranks(reply) for name, reply in replies.items()}
    assert all(nodes.values()), replies
    profile = summarize(run.run_id, 0.0, {name: results or [] for name, results in nodes.items()}, [])
    assert [(entry["rank"], entry["steps"]) for entry in profile["ranks"]] == [(rank, STEPS) for rank in range(RANKS)]
    assert not profile["missing"]
    assert profile["late"] == [LATE]  # visible only in the durations of collectives
    for entry in profile["ranks"]:
        assert entry["step_seconds"] >= 0.8
        assert entry["waiting_seconds"] is not None
        assert (entry["waiting_seconds"] > 0.4) == (entry["rank"] != LATE)
    assert any(operation["name"].startswith("aten::") for operation in profile["operations"])

    traces = []
    for number, reply in enumerate(replies.values()):
        rank = reply["ranks"][0]["rank"]
        number = next(index for index, plan in enumerate(run.plans) if plan["node"]["first_rank"] == rank)
        fetch_trace(run, number, reply, tmp_path / f"rank-{rank}.json.gz")
        assert not list((run.node(number) / "profiles").iterdir())
        traces.append(RankTrace(rank, f"node{rank}", tmp_path / f"rank-{rank}.json.gz", 0.0))
    assert not merge_traces(traces, tmp_path / "timeline.json.gz")
    merged = json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))["traceEvents"]
    names = {event["args"]["name"] for event in merged if event["name"] == "process_name"}
    assert {f"rank {rank} on node{rank}" for rank in range(RANKS)} <= names
    ends = {
        event["pid"] // 10: event["ts"] + event["dur"]
        for event in merged
        if event["name"] == "gloo:all_reduce" and event["ph"] == "X"
    }
    assert set(ends) == set(range(RANKS)), "each rank has collectives on the timeline"

    before = last_step(run, 0)
    eventually(lambda: last_step(run, 0) > before, LONGEST)
    (tmp_path / "over").touch()
    run.wait_until_gone(LONGEST)
    assert run.state(0) == "succeeded"


def test_ranks_without_steps_or_outside_python_are_named(tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text(
        "import os, time, torch\nprint('ready', flush=True)\nwhile not os.path.exists('over'): time.sleep(0.05)"
    )
    run = make_torch_run(tmp_path, script, (), number=2)
    run.plans[1]["command"] = ["/bin/sh", "-c", "echo ready; while [ ! -e over ]; do sleep 0.05; done"]
    try:
        run.start()
        eventually(lambda: all("ready" in read_tail(str(run.node(rank) / "launcher.log")) for rank in (0, 1)), LONGEST)
        replies = profile_nodes(run, seconds=0.5)
        assert replies["node0"]["ranks"][0]["error"] == "no optimizer steps were taken"
        assert "not a Python process" in replies["node1"]["ranks"][0]["error"]
        assert dispatch.main(run.request(0, operation="profile", steps=1, ranks=[7], seconds=1))["ranks"] == []
        (tmp_path / "over").touch()
        run.wait_until_gone(LONGEST)
        assert "not active" in dispatch.main(run.request(0, operation="profile", steps=1, ranks=[], seconds=1))["error"]
    finally:
        end_by_force(run)


IMPORTS_LATE = """
import os, time
asked = os.path.join(os.path.dirname(os.environ["MUSTER_NOTICE_FILE"]), "profile.json")
print("ready", flush=True)
while not os.path.exists(asked):
    time.sleep(0.02)
import torch
weight = torch.nn.Parameter(torch.zeros(8))
optimizer = torch.optim.SGD([weight], lr=0.1)
while not os.path.exists("over"):
    weight.sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


def test_a_request_during_the_import_of_torch_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(IMPORTS_LATE)
    run = make_torch_run(tmp_path, tmp_path / "late.py", (), number=1)
    try:
        run.start()
        run.wait_for("running", seconds=LONGEST)
        eventually(lambda: "ready" in read_tail(str(run.node(0) / "launcher.log")), LONGEST)
        (result,) = profile_nodes(run)["node0"]["ranks"]
        assert (result["error"], len(result["steps"])) == ("", STEPS + 1)
        (tmp_path / "over").touch()
        run.wait_until_gone(LONGEST)
        assert run.state(0) == "succeeded"
    finally:
        end_by_force(run)
