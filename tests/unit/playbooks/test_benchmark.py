# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmark.yml on two local nodes, one of them artificially slow, with and without interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
from tests.unit.plugins.plugin_utils.experiments.benchmark.measurements import document
from tests.unit.plugins.plugin_utils.report.records import write_record
from tests.unit.supervised import eventually
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import begun, killed, typed

pytestmark = pytest.mark.one_core  # needs torch

NODES = ["swift", "slow"]
# Imported at startup by each Python process of the job: on the second node, a matrix product takes fifteen times as
# long. The factor is this large because the scheduler favors tasks that sleep often, which also slows down the other
# node.
SLOW = """
import os, sys, threading, time

def slow_down():
    while not hasattr(sys.modules.get("torch"), "compile"):
        time.sleep(0.05)
    import torch
    product = torch.mm
    def mm(*given, **more):
        start = time.perf_counter()
        found = product(*given, **more)
        time.sleep(14 * (time.perf_counter() - start))
        return found
    torch.mm = mm
if os.environ.get("GROUP_RANK") == "1":
    threading.Thread(target=slow_down, daemon=True).start()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory of two nodes on this machine, and the record of an earlier benchmark."""
    settings = {"benchmark_seconds": 20, "benchmark_largest": 1024, "benchmark_collectives": ["all_reduce"]}
    slow = {"launch_environment": {"PYTHONPATH": f"{tmp_path}/slow"}}
    two_nodes(tmp_path, 10, NODES, benchmark_directory=f"{tmp_path}/program", **settings, **slow)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    previous_record = write_record(tmp_path / "runs", "before", nodes=2)
    fast = document(2, model="cpu", tflops=lambda _rank: 1000.0)
    (previous_record / "benchmark.json").write_text(json.dumps(judge(read_measurements(fast, NODES), None, "before")))
    write_record(tmp_path / "runs", "training")
    failed = write_record(tmp_path / "runs", "failed")
    for name, more in (
        ("plan.json", {"program": f"{tmp_path}/benchmark_job.py"}),
        ("result.json", {"state": "failed"}),
    ):
        (failed / name).write_text(json.dumps({**json.loads((failed / name).read_text()), **more}))
    plan = json.loads((failed / "plan.json").read_text())
    plan["nodes"] = [{**plan["nodes"][0], "name": name} for name in NODES]
    (failed / "plan.json").write_text(json.dumps(plan))
    return tmp_path


def benchmark_command(*more: str) -> list[str]:
    return ["ansible-playbook", "muster.training.benchmark", "-i", "machines.yml", *more]


def run(directory: Path, *more: str) -> tuple[int, str]:
    completed = typed(directory, benchmark_command(*more))
    return completed.returncode, completed.stdout


def completed_phases(directory: Path, run_id: str) -> set[str]:
    """Return the completed phases from the files of rank 0."""
    path = directory / "nodes" / run_id / "node0" / "measured" / "benchmark.json"
    return set(json.loads(path.read_text())["seconds"]) if path.exists() else set()


def test_only_the_slow_node_is_named(directory: Path) -> None:
    code, output = run(directory, "-e", "run_id=now", "-e", "baseline=before", "-e", "benchmark_fail_on_slow=true")
    assert "run now succeeded" in output, output
    assert "problem: slow rank 0 is slow:" in output and "swift rank 0 is slow" not in output, output
    assert "matmul on swift rank 0: " in output and " TFLOP/s, but 1e+03 in before" in output, output
    assert code == 2 and "benchmark_fail_on_slow is set" in output, output
    record = directory / "runs" / "now"
    result = json.loads((record / "benchmark.json").read_text())
    assert result["complete"] and {item["op"] for item in result["collectives"]} == {"all_reduce"}
    assert output.count(f"\nreport: {record}/report.html") == 1, output
    assert "Figures of the benchmark" in (record / "report.html").read_text()


@pytest.mark.thorough  # the test above, and test_sweep.py for an interrupted sequence
def test_killed_benchmark_resumes_and_names_only_the_slow_node(directory: Path) -> None:
    more = ["-e", "run_id=now", "-e", "baseline=before", "-e", "benchmark_fail_on_slow=true"]
    process = begun(directory, benchmark_command(*more))
    try:
        eventually(lambda: process.poll() is not None or "matmul" in completed_phases(directory, "now"), 240)
    finally:
        output = killed(process)
    assert not (directory / "runs" / "now" / "benchmark.json").exists(), output
    code, output = run(directory, *more)
    assert "[benchmark] now was interrupted: resuming it" in output, output
    assert "run now succeeded" in output and "run now-again succeeded" in output, output
    assert "problem: slow rank 0 is slow:" in output and "swift rank 0 is slow" not in output, output
    assert "matmul on swift rank 0: " in output and " TFLOP/s, but 1e+03 in before" in output, output
    assert code == 2 and "benchmark_fail_on_slow is set" in output, output
    record = directory / "runs" / "now"
    result = json.loads((record / "benchmark.json").read_text())
    assert result["complete"] and {item["op"] for item in result["collectives"]} == {"all_reduce"}
    assert output.count(f"\nreport: {record}/report.html") == 1, output
    assert "Figures of the benchmark" in (record / "report.html").read_text()
    code, output = run(directory, *more)
    assert code == 2 and "now is a finished benchmark: choose another name" in " ".join(output.split()), output


@pytest.mark.thorough  # test_two_jobs.py launches on busy nodes, with the same checks
def test_benchmark_is_refused_on_busy_nodes(directory: Path) -> None:
    (directory / "job.py").write_text("import time\ntime.sleep(600)\n")
    job = {"launch_script": f"{directory}/job.py", "launch_launcher": "env", "detach": True, "run_id": "job"}
    command = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", "-e", json.dumps(job)]
    completed = typed(directory, command)
    try:
        assert completed.returncode == 0, completed.stdout
        code, output = run(directory, "-e", "run_id=now", "-e", '{"launch_skip": []}')
    finally:
        completed = typed(
            directory, ["ansible-playbook", "muster.training.stop", "-i", "machines.yml", "-e", "run_id=job"]
        )
    assert code == 2 and "nothing was started: busy on slow, swift" in " ".join(output.split()), output
    assert sorted(path.name for path in (directory / "nodes").iterdir()) == ["job"]


# tests/unit/plugins/action/test_benchmark.py covers each message
@pytest.mark.parametrize(
    ("extra_variable", "message"),
    [
        ("baseline=nothing", "does not exist: name a run launched from this machine"),
        pytest.param(
            "baseline=training",
            "baseline is training, which is not a benchmark",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "run_id=training",
            "training is not a benchmark run: choose another name",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "run_id=failed",
            "failed is a benchmark that has already ended (failed): choose another name",
            marks=pytest.mark.thorough,
        ),
        ("fitted=fit", "fitted was set with -e, but the benchmark launches its own job"),
        pytest.param(
            "launch_script=mine.py",
            "launch_script was set with -e, but the benchmark launches its own job",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "benchmark_seconds=3000",
            "benchmark_seconds is 3000, but must be between 5 and 400",
            marks=pytest.mark.thorough,
        ),
        pytest.param("benchmark_second=30", "did you mean benchmark_seconds?", marks=pytest.mark.thorough),
        pytest.param('{"benchmark_collectives": ["all_recude"]}', "all_recude", marks=pytest.mark.thorough),
    ],
)
def test_wrong_baseline_or_run_id_is_refused_before_anything_starts(
    directory: Path, extra_variable: str, message: str
) -> None:
    code, output = run(directory, "-e", extra_variable)
    assert code == 2 and message in " ".join(output.split()), output
    assert not (directory / "nodes").exists() and not (directory / "program").exists()
