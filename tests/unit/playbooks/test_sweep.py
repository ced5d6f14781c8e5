# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sweep.yml on two local nodes: a variant fails, an interrupted variant is repeated, invalid variants are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.two_nodes import two_nodes, wait_until_it_runs
from tests.unit.typed import begun, killed, typed

pytestmark = pytest.mark.one_core  # needs ansible-runner

NODES = ["one", "other"]
# Reports 100 samples per second for each node; waits while a file exists next to the script.
JOB = """
import json, os, sys, time

while len(sys.argv) > 2 and os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "wait")):
    time.sleep(0.1)
if sys.argv[1] == "wrong":
    raise ValueError("no such strategy")
nodes = int(os.environ["WORLD_SIZE"])
told = {"samples_per_second": 100.0 * nodes, "batch_size": 64 // nodes, "peak_memory_mib": 512}
print("MUSTER_RESULT " + json.dumps(told))
"""
VARIANTS: list[dict[str, Any]] = [
    {"name": "small", "nnodes": 1, "args": ["right"], "environment": {"TOKEN": "s3cret"}},
    {"name": "wrong", "nnodes": 1, "args": ["wrong"]},
    {"name": "large", "nnodes": 2, "args": "right waits"},
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory of two nodes, and a job."""
    two_nodes(tmp_path, 13, NODES, launch_launcher="env", launch_report=False, node_price_per_hour=1.5)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def sweep_command(directory: Path, variants: Any, *more: str) -> list[str]:
    job = ["-e", f"launch_script={directory}/job.py", "-e", "nnodes=2", "-e", json.dumps({"sweep_variants": variants})]
    return ["ansible-playbook", "muster.training.sweep", "-i", "machines.yml", *job, *more]


def test_sweep_skips_failed_variant_and_resumes_after_kill(directory: Path) -> None:
    (directory / "wait").touch()
    process = begun(directory, sweep_command(directory, VARIANTS))
    status = directory / "nodes" / "sweep-large" / "node1" / "status.json"
    try:
        wait_until_it_runs(directory, process, "sweep-large")
    finally:
        output = killed(process)
    assert "[sweep] variant 1 of 3: small" in output and ", about " in output, output
    assert "[sweep] wrong failed and is skipped: one, rank 0: ValueError: no such strategy" in output, output
    assert json.loads((directory / "runs" / "sweep" / "sweep.json").read_text())["running"] == ["sweep-large"]
    (directory / "wait").unlink()
    completed = typed(directory, sweep_command(directory, [item for item in VARIANTS if item["name"] != "wrong"]))
    assert completed.returncode == 0, completed.stdout
    assert "sweep-large was still running when the sweep was interrupted: stopping it" in completed.stdout, (
        completed.stdout
    )
    text = (directory / "runs" / "sweep" / "sweep.json").read_text()
    assert "s3cret" not in text and "s3cret" not in completed.stdout
    record = json.loads(text)
    assert [run["run_id"] for run in record["runs"]] == ["sweep-small", "sweep-large-2"], "small is not launched again"
    assert json.loads(status.read_text())["state"] != "running"
    rows = record["tables"][0]["rows"]
    assert [(row["variant"], row["ranks"], row["samples_per_second"]) for row in rows] == [
        ("large", 2, 200.0),
        ("small", 1, 100.0),
    ]
    assert rows[0]["per_1000_samples"] == pytest.approx(3.0 / 3600 / 200 * 1000)
    page = (directory / "runs" / "sweep" / "sweep.md").read_text()
    assert "| large | 2 | 2 | 32 | 64 | **200** |" in page, page
    assert "variant" in completed.stdout and "0.50 GiB" in completed.stdout


def test_invalid_variants_are_refused_before_anything_starts(directory: Path) -> None:
    completed = typed(directory, sweep_command(directory, []))
    assert completed.returncode == 2 and "there are no variants: list what to compare, as in" in completed.stdout
    completed = typed(
        directory, sweep_command(directory, VARIANTS, "-e", "sweep_parallel=2", "-e", "launch_scheduler=slurm")
    )
    printed = " ".join(completed.stdout.split())
    assert completed.returncode == 2 and "add -e launch_scheduler=slurm -e launch_slurm_choose=true" in printed, printed
    wrong = [
        {"name": "a", "nnodse": 2},
        {"name": "a"},
        {"name": "../a"},
        {"name": "b", "nnodes": 3},
        {"name": "c", "launcher": "torchrn"},
    ]
    completed = typed(directory, sweep_command(directory, wrong))
    printed = " ".join(completed.stdout.split())
    assert (
        completed.returncode == 2 and "variant a: it sets nnodse, but nothing reads it; did you mean nnodes?" in printed
    )
    assert "variant 2 of sweep_variants has the same name as an earlier one, a" in printed
    assert "variant 3 of sweep_variants has the name '../a': use letters, digits" in printed
    assert "variant b: it needs 3 nodes, but the inventory has 2" in printed
    assert "variant c: value of launch_launcher must be one of" in printed, completed.stdout
    assert not (directory / "runs").exists() and not (directory / "nodes").exists()
