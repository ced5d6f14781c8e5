# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a run on three local nodes has exactly the means, peaks and findings of the scripted GPU curves."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

from tests.unit.supervised import free_port, own_network
from tests.unit.typed import CHECKOUT, typed

pytestmark = pytest.mark.one_core
SAMPLES = 20
TOTAL, LIMIT = 46068, 300.0  # MiB and W of each GPU
Curve = list[tuple[float, float, float, float]]  # utilization, memory, temperature and power of each sample

# The stand-in derives its next sample, 15 s after the previous one, from the number of lines in gpus.csv. After the
# last sample, it prints nothing.
SMI = """#!{python} -ISE
import calendar, json, os, sys, time
words = sys.argv[1] if sys.argv[1:] else ""
curves = json.loads({curves!r})
if words.startswith("--query-gpu=timestamp,"):
    path = os.readlink("/proc/self/fd/1")
    gpus = curves[path.split("/")[-2]]
    lines = open(path).read().splitlines()[1:]
    number = len(lines) // len(gpus)
    first = calendar.timegm(time.strptime(lines[0][:19], "%Y/%m/%d %H:%M:%S")) if lines else time.time()
    stamp = time.strftime("%Y/%m/%d %H:%M:%S.000", time.localtime(first + 15 * number))
    for index, curve in enumerate(gpus):
        if number < len(curve):
            used, memory, degrees, watts = curve[number]
            print(f"{{stamp}}, {{index}}, {{used}}, {{memory}}, {total}, {{degrees}}, {{watts:.2f}}, {limit:.2f}")
elif words == "--query-gpu=index,uuid,accounting.mode":
    print("0, GPU-0, Enabled\\n1, GPU-1, Enabled")
elif words.startswith("--query-accounted-apps=gpu_uuid,pid,"):
    print("GPU-0, 100, 40, 10, 9000, 60000")  # of an earlier job
    directory = os.path.dirname(os.readlink("/proc/self/fd/1"))
    if len(open(directory + "/gpus.csv").readlines()) > 2 * {samples}:
        print("GPU-0, 200, 90, 45, 40960, 300000\\nGPU-1, 201, 91, 46, 20480, 299000")
elif words.startswith("--query-gpu=index,"):
    print("index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode")
    for index in range(2):
        print(f"{{index}}, GPU-{{index}}, NVIDIA RTX A6000, 550.54.15, {total} MiB, 4 MiB, Default")
elif words.startswith("--query-compute-apps="):
    print("gpu_uuid, pid, process_name, used_gpu_memory [MiB]")
elif not words:
    print("NVIDIA-SMI 550.54.15, all that it shows a person")
"""
JOB = f"""
import os, time
path = os.path.join(os.environ["MUSTER_RUN_DIRECTORY"], "gpus.csv")
picture = os.path.join(os.environ["MUSTER_RUN_DIRECTORY"], "nvidia-smi.txt")
while open(path).read().count("\\n") < 1 + 2 * {SAMPLES} or not os.path.exists(picture):
    time.sleep(0.02)
print("MUSTER_RESULT", '{{"samples_per_second": 50}}')
"""


def curve(used: float = 90.0, memory: float = 40000.0, degrees: float = 70.0, watts: float = 280.0) -> Curve:
    """Return a GPU with constant activity, except for small variations that make all samples different."""
    return [
        (used + location % 3, memory + location, degrees + location % 5, watts + location / 4)
        for location in range(SAMPLES)
    ]


def curves() -> dict[str, list[Curve]]:
    """Return curves by node and GPU: healthy; intermittently idle and hot; busy at low power; full; unused; healthy."""
    idle = [item if location % 5 < 3 else (0.0, item[1], 91.0, 60.0) for location, item in enumerate(curve())]
    waiting = curve(used=97.0, watts=110.0)
    full = curve(memory=45500.0)
    unused = [(0.0, 4.0, 35.0, 20.0)] * SAMPLES
    return {"node0": [curve(), idle], "node1": [waiting, full], "node2": [unused, curve(watts=275.0)]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection with a higher sampling rate, the nvidia-smi stand-in, an inventory, and the job."""
    location, source = tmp_path / "collections" / "ansible_collections" / "muster" / "training", CHECKOUT
    for part in ("plugins", "module_utils", "_run", "timeouts.py"):
        location.mkdir(parents=True)
        for item in source.iterdir():
            if item.name != part:
                (location / item.name).symlink_to(item)
        location, source = location / part, source / part
    text = source.read_text()
    assert text.count("GPU_SAMPLE_INTERVAL = 15 ") == 1
    location.write_text(text.replace("GPU_SAMPLE_INTERVAL = 15 ", "GPU_SAMPLE_INTERVAL = 0.05 "))
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        SMI.format(python=sys.executable, curves=json.dumps(curves()), total=TOTAL, limit=LIMIT, samples=SAMPLES)
    )
    program.chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "launch_node_directory": str(tmp_path / "nodes"),
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
        "launch_launcher": "env",
        "launch_python": sys.executable,
        "launch_script": str(tmp_path / "job.py"),
        "node_slots": 1,
        "node_price_per_hour": 2,
    }
    hosts = {name: {"node_address": f"{own_network(6)}.{number}"} for number, name in enumerate("abc", 1)}
    (tmp_path / "machines.yml").write_text(json.dumps({"training": {"hosts": hosts, "vars": settings}}))
    return tmp_path


def test_report_matches_scripted_gpu_curves(directory: Path) -> None:
    command = "ansible-playbook muster.training.launch -i machines.yml -e run_id=measured"
    completed = typed(directory, command.split())
    assert completed.returncode == 0, completed.stdout
    record = directory / "runs" / "measured"
    report = json.loads((record / "report.json").read_text())
    scripted = [
        (name, index, gpu_curve)
        for name, gpus in zip("abc", curves().values(), strict=True)
        for index, gpu_curve in enumerate(gpus)
    ]
    assert [(gpu["node"], gpu["index"]) for gpu in report["gpus"]] == [item[:2] for item in scripted]
    for gpu, (_name, _index, gpu_curve) in zip(report["gpus"], scripted, strict=True):
        assert (gpu["samples"], gpu["missing_samples"], gpu["interval_seconds"]) == (SAMPLES, 0, 15)
        assert (gpu["memory_total_mib"], gpu["power_limit_watts"]) == (TOTAL, LIMIT)
        measures = ("utilization_percent", "memory_used_mib", "temperature_celsius", "power_watts")
        for location, measure in enumerate(measures):
            values = [item[location] for item in gpu_curve]
            figure = {"mean": pytest.approx(statistics.fmean(values)), "p5": min(values), "peak": max(values)}
            assert gpu[measure] == {**figure, "samples": SAMPLES}, measure
        assert gpu["idle_share"] == sum(item[0] < 5 for item in gpu_curve) / SAMPLES
    assert [(item["id"], item["severity"], item["about"]) for item in report["findings"]] == [
        ("gpu-unused", "problem", ["c GPU 0"]),
        ("gpu-slow", "problem", ["a GPU 1"]),
        ("gpu-slow", "problem", ["b GPU 0"]),
        ("gpu-hot", "hint", ["a GPU 1"]),
        ("gpu-idle", "hint", ["a GPU 1"]),
        ("gpu-waiting", "hint", ["b GPU 0"]),
        ("memory-full", "hint", ["b GPU 1"]),
    ]
    expected_processes = [(node, gpu, 200 + gpu, [40960, 20480][gpu]) for node in "abc" for gpu in (0, 1)]
    messages = [(item["node"], item["gpu"], item["pid"], item["memory_peak_mib"]) for item in report["processes"]]
    assert messages == expected_processes
    page = (record / "report.html").read_text()
    assert page.count("NVIDIA-SMI 550.54.15, all that it shows a person") == 3
    duration = report["ended"] - report["started"]
    assert report["cost"]["run"] == pytest.approx(3 * 2 * duration / 3600)
    assert report["cost"]["per_1000_samples"] == pytest.approx(1000 * 6 / 3600 / 50)
