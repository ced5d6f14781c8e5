# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fetch.yml for a run on two local nodes: outputs are fetched once, large ones only after confirmation."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
LARGE = 1_100_000_000  # bytes; exceeds the free disk space


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, two nodes with job outputs, and the record of the run."""
    give_collection(tmp_path)
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "launch_node_directory": str(tmp_path / "nodes"),
    }
    group = {"hosts": {"a": {}, "b": {}}, "vars": settings}
    (tmp_path / "machines.yml").write_text(json.dumps({"training": group}))
    nodes = [{"name": name, "slots": 1, "first_rank": rank} for rank, name in enumerate("ab")]
    work = tmp_path / "work"
    work.mkdir()
    (work / "model.pt").write_text("model")
    for rank, node in enumerate(nodes):
        run = tmp_path / "nodes" / "first" / f"node{rank}"
        (run / "checkpoints").mkdir(mode=0o700, parents=True)
        run.chmod(0o700)
        run.parent.chmod(0o700)
        plan = {
            "run_id": "first",
            "unit": "muster-first",
            "rank_logs": "ranks",
            "node": {**node, "node_rank": rank},
            "nodes": nodes,
            "world_size": 2,
            "working_directory": str(work),
            "timeouts": {"grace": 10},
            "outputs": ["model.*"],
        }
        (run / "plan.json").write_text(json.dumps(plan))
        (run / "checkpoints" / "last.pt").write_text("alike")
        (run / "checkpoints" / "rank.pt").write_text(str(rank))
    record = tmp_path / "runs" / "first"
    record.mkdir(parents=True)
    (record / "plan.json").write_text(json.dumps({"run_id": "first", "world_size": 2, "nodes": nodes}))
    return tmp_path


def fetch(directory: Path, *arguments: str) -> tuple[int, str, dict[str, str | int]]:
    """Run the command; return its exit code, its output, and the local files as text, or as size if large."""
    completed = typed(directory, ["ansible-playbook", "-i", "machines.yml", "-e", "run_id=first", *arguments])
    outputs = directory / "runs" / "first" / "outputs"
    files = [path for path in outputs.rglob("*") if path.is_file()]
    result = {str(path.relative_to(outputs)): path for path in files}
    return (
        completed.returncode,
        completed.stdout,
        {
            name: path.read_text() if path.stat().st_size < 1000 else path.stat().st_size
            for name, path in result.items()
        },
    )


HOME = {
    "node0/run/checkpoints/last.pt": "alike",
    "node0/run/checkpoints/rank.pt": "0",
    "node0/work/model.pt": "model",
    "node1/run/checkpoints/rank.pt": "1",
}


def test_outputs_are_fetched_once_and_then_only_new_files(directory: Path) -> None:
    code, output, files = fetch(directory, "muster.training.fetch")
    assert code == 0, output
    assert files == HOME
    assert "the run's outputs: 4 files, 0 MB" in output and "fetched once: 2 files" in output
    (directory / "nodes" / "first" / "node1" / "checkpoints" / "rank.pt").write_text("one")
    code, output, files = fetch(directory, "muster.training.logs", "-e", "fetch=outputs")
    assert code == 0 and files == {**HOME, "node1/run/checkpoints/rank.pt": "one"}, output
    assert "already here: 3 files" in output and "to fetch: 1 file," in output


def test_large_outputs_are_not_fetched_without_confirmation(directory: Path) -> None:
    large = directory / "nodes" / "first" / "node0" / "checkpoints" / "large.pt"
    with large.open("wb") as stream:
        stream.truncate(LARGE)
    code, output, files = fetch(directory, "muster.training.fetch")
    assert code == 2 and files == {}, output
    assert "nothing was fetched: 1.1 GB need confirmation." in " ".join(output.split())
    large.unlink()


def test_unknown_run_is_refused(directory: Path) -> None:
    code, output, files = fetch(directory, "muster.training.fetch", "-e", "run_id=other")
    command = "ansible-playbook muster.training.fetch -i machines.yml -e run_id=NAME"
    message = f"does not exist: name a run launched from this machine, as in {command}"
    assert code == 2 and files == {} and message in " ".join(output.split()), output


@pytest.mark.parametrize("name", ["fetch", "logs", "report"])
def test_project_without_runs_is_told_how_to_launch_one(directory: Path, name: str) -> None:
    shutil.rmtree(directory / "runs")
    command = ["ansible-playbook", f"muster.training.{name}", "-i", "machines.yml"]
    completed = typed(directory, command, MUSTER_COMMAND="./muster")
    message = f"no run has been launched from this project yet: {directory}/runs has no records. Launch one: ./muster"
    assert completed.returncode == 2, completed.stdout
    assert f"{message} launch train.py" in " ".join(completed.stdout.split()), completed.stdout


def test_unknown_run_is_refused_with_the_command_of_muster(directory: Path) -> None:
    command = ["ansible-playbook", "muster.training.logs", "-i", "machines.yml", "-e", "run_id=other"]
    completed = typed(directory, command, MUSTER_COMMAND="./muster")
    assert completed.returncode == 2, completed.stdout
    assert "as in ./muster logs NAME (./muster runs lists the runs" in completed.stdout, completed.stdout
