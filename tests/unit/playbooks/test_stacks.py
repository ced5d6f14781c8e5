"""stacks.yml and status.yml for a run in which one rank waits for the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually
from tests.unit.two_nodes import state_of, two_nodes
from tests.unit.typed import typed

DISTRIBUTED = """
import time
def all_reduce():
    while True:
        time.sleep(0.05)
"""
JOB = """
import os, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
from torch.distributed import fake
def load():
    while True:
        time.sleep(0.05)
print("begins", flush=True)
load() if os.environ["NODE_RANK"] == "1" else fake.all_reduce()
"""
WAITS = "rank 0 on local0 waits in all_reduce (job.py:9)"
LOADS = "rank 1 on local1 is in load (job.py:7)"


@pytest.mark.one_core
def test_stacks_and_status_name_the_rank_that_the_other_waits_for(tmp_path: Path) -> None:
    two_nodes(tmp_path, 175, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/job.py")
    package = tmp_path / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "fake.py").write_text(DISTRIBUTED)
    (tmp_path / "job.py").write_text(JOB)

    def run(playbook: str, *settings: str, expected: int = 0) -> str:
        options = [option for setting in settings for option in ("-e", setting)]
        completed = typed(tmp_path, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *options])
        assert completed.returncode == expected, completed.stdout
        return " ".join(completed.stdout.split())

    def stacks_show_both() -> str:
        """Return the stacks once both ranks have reached their final position, otherwise an empty string."""
        output = run("stacks")
        return output if WAITS in output and LOADS in output else ""

    try:
        run("launch", "detach=true", "run_id=first", "launch_hang_timeout=2")
        eventually(lambda: state_of(tmp_path, "first") == "running")
        output = eventually(stacks_show_both)
        assert f"{WAITS}; {LOADS}" in output
        assert "job.py:7: time.sleep(0.05)" in output and "all_reduce (fake.py:5)" in output
        (record,) = tmp_path.rglob("first/stacks.json")
        document = json.loads(record.read_text())
        assert document["awaited_ranks"] == [1] and [group["ranks"] for group in document["groups"]] == [[0], [1]]

        rank_output = run("stacks", "rank=1")
        assert "all_reduce (fake.py:5)" not in rank_output and "job.py:7: time.sleep(0.05)" in rank_output
        assert "rank 7 is not running, or its node did not reply" in run("stacks", "rank=7")
        assert [group["ranks"] for group in json.loads(record.read_text())["groups"]] == [[0], [1]], "all, not only one"
        assert "rank is 'x': use a number, such as -e rank=3" in run("stacks", "rank=x", expected=2)

        def status_shows_the_hang() -> str:
            """Return the status once it reports the hang, otherwise an empty string."""
            output = run("status")
            return output if "no output for" in output else ""

        output = eventually(status_shows_the_hang)
        assert "the other ranks are waiting for rank 1;" in output and f"{WAITS}; {LOADS}" in output
        assert state_of(tmp_path, "first") == "running"
    finally:
        for name in ("local0", "local1"):
            request = {"run_id": "first", "runs_directory": f"{tmp_path}/nodes", "node": name}
            run_stop.stop({**request, "user": "", "check": False})
    assert "local0: run first is not active on this node" in run("stacks", "run_id=first", expected=2)
    assert json.loads(record.read_text())["groups"], "those of the hang are kept"
