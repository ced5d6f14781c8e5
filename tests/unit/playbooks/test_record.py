# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of a run record, for two local nodes with simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER, read_line
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import read_gpus
from tests.unit.supervised import eventually, free_port, own_network
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
JOB = """
import json, os, sys, time
from pathlib import Path

directory = Path(os.environ["MUSTER_RUN_DIRECTORY"])
while (directory / "gpus.csv").read_text().count("\\n") < 2:  # the first sample is taken at the start
    time.sleep(0.01)
measured = directory / "measured"
rank = os.environ["NODE_RANK"]
(measured / f"loss{rank}.csv").write_text("0,1.5\\n")
for step in range(3):
    print("MUSTER_RESULT", json.dumps({"step": step, "loss": 1 / (step + 1)}), flush=True)
if sys.argv[1:] == ["fail"] and rank == "1":
    sys.exit("ValueError: boom")
"""
SMI = """#!/bin/sh
case "$1" in
  --query-gpu=timestamp,*) echo "$(date '+%Y/%m/%d %T.%3N'), 0, 97, 41000, 46068, 64, 250.00, 300.00" ;;
  --query-gpu=index,*)
    echo "index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode"
    echo "0, GPU-0, NVIDIA RTX A6000, 550.54.15, 46068 MiB, 4 MiB, Default" ;;
  --query-compute-apps=*) echo "gpu_uuid, pid, process_name, used_gpu_memory [MiB]" ;;
esac
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create two nodes with a price, a stand-in for nvidia-smi, and a job in a git checkout."""
    give_collection(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(SMI)
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    (project / "job.py").write_text(JOB)
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for arguments in (["init"], ["add", "job.py"], ["commit", "--message=first"]):
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True, env=environment)
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "launch_node_directory": str(tmp_path / "nodes"),
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
        "launch_launcher": "env",
        "launch_python": sys.executable,
        "launch_script": "job.py",
        "launch_working_directory": str(project),
        "node_slots": 1,
    }
    hosts: dict[str, dict[str, object]] = {
        "a": {"node_address": f"{own_network(5)}.1", "node_price_per_hour": 2.5},
        "b": {"node_address": f"{own_network(5)}.2", "node_price_per_hour": "5.06"},
    }
    (tmp_path / "machines.yml").write_text(json.dumps({"training": {"hosts": hosts, "vars": settings}}))
    return tmp_path


def run(directory: Path, playbook: str, *more: str) -> tuple[int, str]:
    completed = typed(directory, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *more])
    return completed.returncode, completed.stdout


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_failed_run_has_a_complete_record(directory: Path) -> None:
    code, output = run(directory, "launch", "-e", "run_id=first", "-e", "launch_args=fail")
    assert code == 2, output
    assert output.count("run first failed\n") + output.count('run first failed"') == 1, output
    assert "  costs        7.56 USD an hour\n" in output and "\n  cost: 0.0" in output, output
    record = directory / "runs" / "first"
    plan, result = read(record / "plan.json"), read(record / "result.json")
    commit = subprocess.run(
        ["git", "-C", str(directory / "project"), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert plan["code"] == {"commit": commit, "dirty": False}
    assert [node["price_per_hour"] for node in plan["nodes"]] == [2.5, 5.06]
    for node in plan["nodes"]:
        assert node["hardware"] == {"gpu": "RTX A6000", "gpus": 1, "memory_mib": 46068, "driver": "550.54.15"}
        assert node["software"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert result["cost"] == pytest.approx(7.56 * (result["ended"] - result["started"]) / 3600)
    assert result["job_results"] == {"step": 2, "loss": 1 / 3}
    assert [node["oom_kills"] for node in result["nodes"]] == [0, 0]
    for rank in (0, 1):
        node = record / "logs" / f"node{rank}"
        assert (node / "measured" / f"loss{rank}.csv").read_text() == "0,1.5\n"
        samples = (node / "gpus.csv").read_text()
        assert samples.startswith(HEADER)
        sample = read_line(samples.splitlines()[1])
        assert sample is not None and sample[1]["power_limit_watts"] == 300
        (gpu,) = read_gpus(f"node{rank}", samples.splitlines())
        assert -60 < gpu.time[0] - result["started"] < 60
        assert (node / "launcher.log").exists() == (rank == 0)
    message = (record / "logs" / "node0" / "job_results.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in message] == [0, 1, 2]
    assert (record / "logs" / "node0" / "events.jsonl").exists()


def test_status_records_the_result_of_a_detached_run(directory: Path) -> None:
    code, output = run(directory, "launch", "-e", "run_id=first", "-e", "detach=true")
    assert code == 0, output
    node = directory / "nodes" / "first" / "node0"
    eventually((node / "result.json").exists)
    code, output = run(directory, "status")
    assert code == 0 and "  step: 2\n" in output and "\n  cost: 0.0" in output, output
    record = directory / "runs" / "first"
    assert read(record / "result.json")["job_results"] == {"step": 2, "loss": 1 / 3}
    assert (record / "logs" / "node1" / "measured" / "loss1.csv").exists()


def test_price_that_is_not_a_number_is_refused(directory: Path) -> None:
    code, output = run(directory, "launch", "-e", "node_price_per_hour=cheap")
    assert (
        code == 2
        and "node_price_per_hour for b is 'cheap'; set it to the machine's price per hour, such as 2.49" in output
    ), output
    assert not (directory / "runs").exists()
