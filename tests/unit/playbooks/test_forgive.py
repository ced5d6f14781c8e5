# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""forgive.yml on two local nodes; until then, launch and preflight refuse the bad machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed


@pytest.mark.one_core
def test_bad_machine_is_refused_until_it_is_forgiven(tmp_path: Path) -> None:
    two_nodes(tmp_path, 32, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/job.py")
    (tmp_path / "job.py").write_text("print('done')\n")
    file = tmp_path / "bad-nodes.json"

    def run(playbook: str, *options: str, expected: int = 0) -> str:
        completed = typed(tmp_path, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *options])
        assert completed.returncode == expected, completed.stdout
        return completed.stdout

    assert "no machines are recorded as bad" in run("forgive")
    assert "not in the group training" in run("forgive", "-e", "add=local7", expected=2)
    output = run("forgive", "-e", "add=local1", "-e", '{"reason": "its fan is broken"}')
    assert "local1" in output and "its fan is broken (" in output
    (entry,) = json.loads(file.read_text())["nodes"]
    assert (entry["node"], entry["run"], entry["failed_gpus"]) == ("local1", "", [])
    # both nodes are this machine, so serial numbers cannot distinguish them
    file.write_text(json.dumps({"nodes": [{"node": "local1", "reason": "its fan is broken", "time": 1.0}]}))
    output = run("preflight", expected=2)
    assert "bad-node" in output and "its fan is broken" in output and "forgive" in output
    assert "nothing was started: bad-node on local1" in run("launch", "-e", "run_id=first", expected=2)
    assert "run second succeeded" in run("launch", "-e", "run_id=second", "-e", '{"launch_skip": ["busy", "bad-node"]}')
    assert "is not recorded as bad; recorded: local1" in run("forgive", "-e", "node=local0", expected=2)
    assert "no machines are recorded as bad" in run("forgive", "-e", "node=local1")
    assert json.loads(file.read_text()) == {"nodes": []}
    assert "run third succeeded" in run("launch", "-e", "run_id=third")
    identity = json.loads((tmp_path / "runs" / "third" / "plan.json").read_text())["nodes"][1]["identity"]
    assert set(identity) == {"serial", "asset", "machine_id", "gpus"}
