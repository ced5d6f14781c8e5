# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark program in two processes that each represent a node, with real torch and gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._benchmark_job.ranks import read_line_rate
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import OPERATIONS
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
from tests.support.programs import install
from tests.unit.supervised import free_port

# Starts the program with an incorrect all_reduce on the second node. Tensors used for coordination have a different
# dtype.
WRONG_SUM_LAUNCHER = """
import runpy, sys
import torch, torch.distributed as dist
right = dist.all_reduce
def wrong(tensor, *more, **named):
    right(tensor, *more, **named)
    if tensor.dtype == torch.float32 and dist.get_rank() == 1:
        tensor[-1] += 1
dist.all_reduce = wrong
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
BASE_WORK = {
    "matmul_seconds": 0.1,
    "matmul_size": 128,
    "max_buffer_bytes": 4096,
    "collectives": OPERATIONS,
    "pair_bytes": 65536,
}


def run_benchmark(directory: Path, seconds: dict[str, float], *launcher: str, processes: int = 2) -> dict[str, Any]:
    """Run the program and return its results.

    Args:
        seconds: Seconds per phase.
        launcher: Arguments to Python that start the program, if not the program itself.
    """
    rounds = [[[0, 1]]] if processes > 1 else []
    (directory / "work.json").write_text(json.dumps({**BASE_WORK, "rounds": rounds, "seconds": seconds}))
    program = install("_benchmark_job.benchmark_job", directory)
    port = str(free_port())
    processes_started = [
        subprocess.Popen(
            [sys.executable, *launcher, str(program), str(directory / "work.json")],
            env={
                **os.environ,
                **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes), "RANK": str(rank)},
                **{"GROUP_RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
                **{"GLOO_SOCKET_IFNAME": "lo", "MUSTER_RUN_DIRECTORY": str(directory)},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]
    for process in processes_started:
        output, _none = process.communicate(timeout=240)
        assert process.returncode == 0, output
    measured: dict[str, Any] = json.loads((directory / "measured" / "benchmark.json").read_text())
    return measured


def test_everything_is_measured_and_an_incorrect_sum_is_reported(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG_SUM_LAUNCHER)
    seconds = {"matmul": 5.0, "copies": 0.1, "node": 5.0, "all": 60.0, "pairs": 0.0}  # pairs use the remaining time
    output = run_benchmark(tmp_path, seconds, str(tmp_path / "wrong.py"))
    assert output["complete"] and output["backend"] == "gloo" and output["left_out"] == []
    measured = read_measurements(output, ["a", "b"])
    assert {gpu["node"] for gpu in measured.gpus} == {copy["node"] for copy in measured.copies} == {"a", "b"}
    assert {row["op"] for row in measured.collectives} == set(OPERATIONS)
    assert sorted({row["bytes"] for row in measured.collectives}) == [8, 1024, 4096]
    assert [(pair["a"], pair["b"], pair["correct"]) for pair in measured.pairs] == [("a", "b", True)]
    wrong = [row for row in judge(measured, None, "b")["findings"] if "wrong" in row["id"]]
    assert [row["problem"] for row in wrong] == ["all_reduce gives wrong results on b, with 8 bytes and 2 other sizes"]


def test_measurements_without_time_left_are_listed(tmp_path: Path) -> None:
    output = run_benchmark(tmp_path, {"all": 0.0, "pairs": 0.0})
    assert output["complete"] and output["collectives"] == [] and output["pairs"] == []
    assert output["left_out"] == [
        *(f"{operation} over all from 8 bytes up: no time left" for operation in OPERATIONS),
        "1 of 1 node-pair rounds: no time left",
    ]


def test_single_process_exchanges_no_data(tmp_path: Path) -> None:
    output = run_benchmark(tmp_path, {"matmul": 5.0, "all": 60.0, "pairs": 60.0}, processes=1)
    assert output["complete"] and output["collectives"] == [] and output["pairs"] == []
    assert output["left_out"] == ["collectives: there is only one process"]


def test_line_rate_is_read_only_from_interfaces_with_hardware(tmp_path: Path) -> None:
    for name, neighbors in {"eth0": ["device"], "veth1": [], "bond0": ["lower_eth0"], "vlan5": ["lower_bond0"]}.items():
        for neighbor in neighbors:
            (tmp_path / name / neighbor).mkdir(parents=True)
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "speed").write_text("10000\n")
    rates = {name: read_line_rate(name, str(tmp_path)) for name in ("eth0", "veth1", "bond0", "vlan5", "", "x")}
    assert rates == {"eth0": 10000, "veth1": None, "bond0": 10000, "vlan5": 10000, "": None, "x": None}
