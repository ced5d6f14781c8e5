# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two concurrent jobs on the same two nodes with separate GPUs and a stand-in for nvidia-smi."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually
from tests.unit.two_nodes import state_of, two_nodes
from tests.unit.typed import typed

NVIDIA_SMI = f"""#!{sys.executable}
import sys
options = dict(option.partition("=")[::2] for option in sys.argv[1:])
fields = options.get("--query-gpu", "").split(",")
gpus = [int(index) for index in options.get("--id", "0,1,2,3").split(",")]
if "noheader" not in options.get("--format", ""):
    print(", ".join(fields))
values = {{"driver_version": "570.211.01", "name": "NVIDIA H100", "memory.total": "81559 MiB", "memory.used": "4 MiB"}}
values.update({{"timestamp": "2026/11/22 10:15:00.123", "compute_mode": "Default", "compute_cap": "9.0"}})
for index in gpus if fields != [""] else []:
    own = {{"index": str(index), "uuid": f"GPU-{{index}}"}}
    print(", ".join(own.get(field, values.get(field, "[N/A]")) for field in fields))
"""
WAIT = """import os, time
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["WORLD_SIZE"], flush=True)
time.sleep(600)
"""


def read_output(directory: Path, run_id: str) -> str:
    """Wait for output of a run on the second node and return it."""
    log = directory / "nodes" / run_id / "node1" / "launcher.log"
    return str(eventually(lambda: log.exists() and log.read_text().strip()))


@pytest.mark.one_core
def test_two_launches_share_their_nodes_with_different_gpus(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    script = f"{tmp_path}/wait.py"
    two_nodes(tmp_path, 71, launch_launcher="env", launch_report=False, launch_script=script, launch_skip=[])
    inventory = tmp_path / "machines.yml"
    settings = inventory.read_text().splitlines()  # the role's ports
    inventory.write_text("\n".join(line for line in settings if "_port:" not in line) + "\n")

    def launch(run_id: str, gpus: str) -> tuple[int, str]:
        command = f"ansible-playbook muster.training.launch -i machines.yml -e detach=true -e run_id={run_id} {gpus}"
        completed = typed(tmp_path, command.split())
        return completed.returncode, " ".join(completed.stdout.split())

    try:
        for run_id, gpus in (("low", "0,1"), ("high", "2,3")):
            status, output = launch(run_id, f"-e gpus={gpus}")
            assert status == 0, output
            assert f"GPUs {gpus[0]}, {gpus[2]} on each node" in output
        for run_id, expected in (("low", "0,1 4"), ("high", "2,3 4")):
            assert read_output(tmp_path, run_id) == expected
        plans = [
            json.loads((tmp_path / "nodes" / name / "node0" / "plan.json").read_text()) for name in ("low", "high")
        ]
        assert [plan["lifeline"]["port"] for plan in plans] == [29499, 29519]
        assert [plan["environment"]["MASTER_PORT"] for plan in plans] == ["29500", "29520"]
        assert [machine["hardware"]["gpus"] for machine in plans[1]["nodes"]] == [2, 2]
        samples = tmp_path / "nodes" / "high" / "node1" / "gpus.csv"
        eventually(lambda: samples.read_text().count("\n") >= 3)
        assert {line.split(", ")[1] for line in samples.read_text().splitlines()[1:]} == {"2", "3"}
        status, output = launch("third", "-e gpus=1,2")
        assert status == 2
        assert "run high" in output and "is running on the node on GPUs 2, 3" in output, output
        assert "nothing was started: busy on local0, local1" in output
        status, output = launch("fourth", "-e gpus=1 -e replace=true")
        assert status == 0, output
        assert state_of(tmp_path, "low") == "stopped" and state_of(tmp_path, "high") == "running"
        status, output = launch("fifth", "-e gpus=4")
        assert status == 2 and "the node has no GPU 4: it has 4 GPUs" in output, output
    finally:
        for name in ("local0", "local1"):
            run_stop.stop({"run_id": "", "runs_directory": f"{tmp_path}/nodes", "node": name, "check": False})
