# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that restarts: the output of each attempt, and a machine that tries to join."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed

# Rank 1 is killed in attempt 0; attempt 1 waits for a file.
JOB = """
import os, pathlib, signal, time
attempt, rank = os.environ["MUSTER_ATTEMPT"], os.environ["NODE_RANK"]
print(f"attempt {attempt} of rank {rank}", flush=True)
if attempt + rank == "01":
    os.kill(os.getpid(), signal.SIGKILL)
while attempt == "0" or not pathlib.Path(__file__).with_name("end").exists():
    time.sleep(0.05)
"""
BAD = {"nodes": [{"node": "local2", "reason": "GPU 3 fell off the bus", "time": 1.0}]}


@pytest.mark.one_core
def test_each_attempt_is_shown_and_a_bad_machine_is_not_used(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"launch_launcher": "env", "launch_restarts": 1, "launch_restart_when": ["rank_failed"]}
    two_nodes(tmp_path, 39, launch_report=False, launch_script=f"{tmp_path}/job.py", **settings)
    (tmp_path / "job.py").write_text(JOB)

    def run(playbook: str, *options: str, expected: int = 0) -> str:
        completed = typed(tmp_path, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *options])
        assert completed.returncode == expected, completed.stdout
        return completed.stdout

    def logs(*options: str, expected: int = 0) -> list[str]:
        output = run("logs", *(word for option in options for word in ("-e", option)), expected=expected)
        attempt_lines = [line for line in output.splitlines() if line.startswith(("[muster] ", "attempt "))]
        return attempt_lines if expected == 0 else [" ".join(output.split())]

    try:
        run("launch", "-e", "detach=true", "-e", "run_id=first")
        log = tmp_path / "nodes" / "first" / "node1" / "attempt-1" / "launcher.log"
        eventually(lambda: log.exists() and "attempt 1" in log.read_text(), 240)
        assert logs("attempt=0", "rank=1") == ["[muster] attempt 0, rank 1, on local1:", "attempt 0 of rank 1"]
        assert "whose newest attempt is 1: correct -e attempt" in logs("attempt=2", expected=2)[0]
        assert "attempt x is not a number" in logs("attempt=x", expected=2)[0]

        machines = (tmp_path / "machines.yml").read_text()
        third = "    local2: {node_address: 127.0.0.9, node_price_per_hour: 2.5}\n"
        (tmp_path / "machines.yml").write_text(machines.replace("  vars:\n", f"{third}  vars:\n", 1))
        join = ("join", "-e", "node=local2", "-e", "run_id=first")
        output = " ".join(run(*join, expected=2).split())
        assert "local2 cannot join run first" in output and "no node of the run is missing" in output
        (tmp_path / "bad-nodes.json").write_text(json.dumps(BAD))
        output = " ".join(run(*join, expected=2).split())
        assert "GPU 3 fell off the bus" in output, output
        assert "local2 cannot join run first, for the reasons shown above with their remedies: bad-node" in output
        assert not list((tmp_path / "nodes" / "first").glob("node*/join.request"))

        (tmp_path / "end").touch()
        assert logs("attempt=1") == ["[muster] attempt 1, rank 0, on local0:", "attempt 1 of rank 0"]
        all_lines = logs()
        order = [line for line in all_lines if line.startswith(("attempt ", "[muster] attempt "))]
        assert order[0] == "attempt 0 of rank 0" and order[-1] == "attempt 1 of rank 0"
        assert any(line.startswith("[muster] attempt 1 starts") for line in order[1:-1])
        assert logs("rank=1")[:3] == ["attempt 0 of rank 1", "[muster] output of attempt 1:", "attempt 1 of rank 1"]
    finally:
        for name in ("local0", "local1"):
            request = {"run_id": "first", "runs_directory": f"{tmp_path}/nodes", "node": name, "user": ""}
            run_stop.stop({**request, "check": False, "replace": False})
