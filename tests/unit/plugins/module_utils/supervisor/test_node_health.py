# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of nodes during a run, with real supervisors, a pipe as the kernel log, and a stand-in for nvidia-smi."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._health import host_health
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER
from ansible_collections.muster.training.plugins.module_utils._supervisor.health import judge
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import EVENTS
from ansible_collections.muster.training.plugins.plugin_utils._failures.hardware import blamed_nodes
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

# Prints the state of two GPUs from the files next to it.
SMI = """#!/bin/sh
cd "${0%/*}"
case "$*" in
*remapped*) cat rows ;;
*pci.bus_id*) cat devices ;;
*clocks.current.sm*) cat pace; : >been-read ;;
"nvlink --status") cat links ;;
"nvlink -e") ;;
*) echo "2026/11/22 10:15:00.123, 0, 97, 72914, 81559, 64, 641.27, 700.00" ;;
esac
"""
FILES = {
    "devices": "index, uuid, serial, bus\n"
    "0, GPU-a, 1654, 00000000:18:00.0, 5, 5, 16, 16, 0\n1, GPU-b, 1655, 00000000:2A:00.0, 5, 5, 16, 16, 0\n",
    "rows": "gpu_uuid, rows\nGPU-a, 0, 0, No, No\nGPU-b, 0, 0, No, No\n",
    "pace": "index, uuid, clocks\n"
    "0, GPU-a, 1980, 1980, 612.41, 700.00, 98, 0x4\n1, GPU-b, 1980, 1980, 598.02, 700.00, 97, 0x4\n",
    "links": "GPU 0: H100 (UUID: GPU-a)\n\t Link 0: 26.562 GB/s\nGPU 1: H100 (UUID: GPU-b)\n\t Link 0: 26.562 GB/s\n",
}
JOB = ["/bin/sh", "-c", 'while [ ! -e "$OLDPWD/go" ] && [ ! -e go ]; do sleep 0.05; done; [ ! -e fails ] || exit 1']
FALLEN = "NVRM: Xid (PCI:0000:2a:00): 79, pid=0, GPU has fallen off the bus."
RunMaker = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[RunMaker]:
    """Make runs of nodes with GPUs whose health is read frequently."""
    runs: list[Run] = []

    def maker(nodes: int = 2, **options: Any) -> Run:
        ports = {"lifeline_port": free_port(), "master_port": free_port()}
        run = make_run(tmp_path, [JOB] * nodes, **{**ports, "first_address": 151, **options})
        for name, text in FILES.items():
            (tmp_path / name).write_text(text)
        (tmp_path / "nvidia-smi").write_text(SMI)
        (tmp_path / "nvidia-smi").chmod(0o755)
        os.mkfifo(tmp_path / "kmsg")
        for plan in run.plans:
            plan["working_directory"] = str(tmp_path)
        run.plans[-1].update(
            gpu_samples=[f"{tmp_path}/nvidia-smi", "--query-gpu=timestamp"], files={"gpus.csv": HEADER}
        )
        for name, source in run.sources.items():
            run.sources[name] = source.replace('"/dev/kmsg"', json.dumps(f"{tmp_path}/kmsg"))
        run.set_constant("HEALTH_CHECK_INTERVAL", 0.5)
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def log(run: Run, text: str) -> None:
    """Write a message to the kernel log."""
    descriptor = os.open(run.directory / "kmsg", os.O_RDWR | os.O_NONBLOCK)  # with its own reader: never rejected
    os.write(descriptor, f"3,1,1,-;{text}\n".encode())
    eventually(lambda: any("Xid" in event for event in run.events()))
    os.close(descriptor)


def rewrite(run: Run, name: str, old: str, new: str) -> None:
    path = run.directory / name
    text = path.read_text()
    assert old in text
    path.with_suffix(".new").write_text(text.replace(old, new))
    path.with_suffix(".new").replace(path)


def test_lost_gpu_is_reported_and_the_verdict_blames_the_hardware_of_its_node(make: RunMaker) -> None:
    run = make()
    run.start()
    run.wait_for("running")
    eventually((run.directory / "been-read").exists)  # a problem that exists from the start is not a change
    rewrite(run, "rows", "GPU-a, 0, 0, No", "GPU-a, 0, 1, Yes")
    pending = (
        "node1: GPU 0 has a broken memory row, which will be replaced when the GPU is reset or the node is rebooted"
    )
    eventually(lambda: pending in run.events())
    log(run, FALLEN)
    text = (
        "Xid 79 on GPU 1 (GPU has fallen off the bus); NVIDIA: restart the machine; have the GPU replaced if the "
        "error returns"
    )
    assert f"node1: {text}" in run.events()
    problems = eventually(lambda: run_status.read(run.request(1, wait=0))["run"]["health"])
    assert text in problems
    (run.directory / "fails").touch()
    (run.directory / "go").touch()
    run.wait_until_gone()
    result = run.result()
    assert result["broken"] == [{"node": "node1", "text": f"node1: {text}"}]
    findings = result["nodes"][1]["report"]["health"]
    assert {"text": text, "gpu": "GPU-b", "hardware": "yes"} in findings
    assert [blame._asdict() for blame in blamed_nodes(verdict_from_hub(run.plans[0], result))] == [
        {"node": "node1", "reason": text, "gpus": ["GPU-b"]}
    ]
    kinds = {json.loads(line)["event"] for line in (run.node(0) / "events.jsonl").read_text().splitlines()}
    assert {"health", "broken"} <= kinds and EVENTS["broken"] == EVENTS["health"] == "unhealthy"


def test_resolved_problem_is_reported_and_does_not_end_the_run(make: RunMaker) -> None:
    run = make(1)
    run.start()
    run.wait_for("running")
    rewrite(run, "pace", "97, 0x4", "97, 0x44")
    slow = "node0: GPU 1 is running at a reduced clock at 1980 MHz: hardware thermal slowdown"
    eventually(lambda: slow in run.events())
    rewrite(run, "pace", "97, 0x44", "97, 0x4")
    eventually(
        lambda: (
            "node0: no longer the case: GPU 1 is running at a reduced clock at 1980 MHz: hardware thermal slowdown"
            in run.events()
        )
    )
    assert run.events().count(slow) == 1
    eventually(lambda: run_status.read(run.request(0, wait=0))["run"]["health"] == [])
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    result = run.result()
    assert result["broken"] == [] and blamed_nodes(verdict_from_hub(run.plans[0], result)) == []


def test_slow_gpu_of_a_run_is_named(make: RunMaker) -> None:
    run = make(1)
    run.set_constant("PACE_WINDOW", 3.0)
    rewrite(run, "pace", "1, GPU-b, 1980", "1, GPU-b, 990")
    run.start()
    expected = (
        "GPU 1 of node0 is running at 990 MHz, the others at 1980 MHz (598 W, the others 605 W; power limit reached)"
        "; the run is limited to its pace: up to 50 % of the time"
    )
    eventually(lambda: run.node(0).joinpath("events.jsonl").exists() and expected in run.events())
    eventually(lambda: expected in run_status.read(run.request(0, wait=0))["run"]["health"])
    (run.directory / "go").touch()
    run.wait_for("succeeded")


def open_files(pid: int) -> set[str]:
    """Return what the file descriptors of a process refer to, except those that it closes meanwhile."""
    targets = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.add(os.readlink(path))
    return targets


def test_run_without_gpus_reads_no_kernel_log(make: RunMaker) -> None:
    run = make(1)
    run.plans[0].update(gpu_samples=[], files={})
    run.start()
    run.wait_for("running")
    assert f"{run.directory}/kmsg" not in open_files(run.supervisor(0))
    (run.directory / "go").touch()
    run.wait_for("succeeded")


def device(**values: Any) -> dict[str, Any]:
    defaults = {"index": 0, "uuid": "GPU-a", "pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "ecc_aggregate": 0}
    return {**defaults, **values}


def reading(**values: Any) -> dict[str, Any]:
    pace = {"index": 0, "clock": 1980.0, "utilization": 99.0, "throttling": 4}
    links = {"index": 0, "active": [0, 1], "inactive": [], "errors": 5}
    return {"devices": [device()], "rows": {}, "nvlinks": [links], "pace": [pace], **values}


@pytest.mark.parametrize(
    ("changes", "text", "is_hardware"),
    [
        ({"rows": {"GPU-a": {"failure": True}}}, "GPU 0 has no spare memory rows left: have it replaced", True),
        ({"devices": [device(ecc_aggregate=1)]}, "GPU 0 has had an uncorrected memory error in this run", False),
        ({"devices": [device(pcie_width=8)]}, "GPU 0 is using 8 PCI Express lanes, down from 16", False),
        ({"devices": [device(pcie_gen=3)]}, "GPU 0 uses PCI Express 3 under load, but supports 5", False),
        (
            {"nvlinks": [{"index": 0, "active": [0], "inactive": [1], "errors": 5}]},
            "GPU 0 has 1 active NVLinks, down from 2",
            True,
        ),
        (
            {"nvlinks": [{"index": 0, "active": [0, 1], "inactive": [], "errors": 105}]},
            "the NVLinks of GPU 0 have had 100 errors in this run",
            False,
        ),
    ],
)
def test_change_of_a_gpu_is_a_problem(changes: dict[str, Any], text: str, is_hardware: bool) -> None:
    (problem,) = judge.gpu_problems(reading(), reading(**changes))
    assert (problem.text, problem.is_hardware) == (text, is_hardware)
    assert list(judge.gpu_problems(reading(**{**changes, "pace": []}), reading(**{**changes, "pace": []}))) == []


def test_port_memory_and_disk_problems_are_reported() -> None:
    port = {"name": "mlx5_0/1", "state": "ACTIVE", "counters": {"link_downed": 1, "symbol_error": 7}}
    assert list(judge.port_problems([port], [port])) == []
    down = {**port, "state": "DOWN", "counters": {"link_downed": 2}}
    assert [problem.text for problem in judge.port_problems([port], [down])] == [
        "RDMA port mlx5_0/1 is DOWN, but was active when the run started",
        "the link_downed counter of RDMA port mlx5_0/1 has increased by 1 in this run: check the cable and the switch",
    ]
    memory = {"total_bytes": 100 * 2**30, "available_bytes": 5 * 2**30, "swap_total_bytes": 2**30, "swap_free_bytes": 0}
    assert list(judge.memory_shortage(memory, was_low=False)) == []
    (low,) = judge.memory_shortage(memory, was_low=True)
    assert low.text == "only 5.0 of 100.0 GiB of memory is available; 1.0 GiB is in swap"
    forecast = host_health.DiskForecast()
    for second in range(0, 200, 10):
        forecast.add(float(second), 10 * 2**30 - second * 2**24)
    (full,) = judge.disk_shortage("/runs", 7 * 2**30, forecast)
    assert full.text == "the disk that holds /runs will be full in 8 min: 7.0 GiB is free"
