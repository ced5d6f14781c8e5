"""Samples of AMD GPUs: the child process, its command, and values that are not requested from amd-smi."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._health.amd_smi import METRIC
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import (
    COLUMNS,
    HEADER,
    last_sample,
    parse_time,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_tools import health_command, tool_of
from ansible_collections.muster.training.plugins.module_utils._supervisor.health import amd_sampler
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import read_sample
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "amd_smi"


def stub(directory: Path, script: str) -> str:
    program = directory / "amd-smi"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def test_sample_has_the_columns_of_gpus_csv(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    smi = stub(tmp_path, f"cat {FIXTURES}/metric_mi350x.json")
    assert amd_sampler.main([smi]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [len(line.split(", ")) for line in lines] == [len(COLUMNS)] * 2
    timestamp, devices = last_sample("\n".join(lines) + "\n")
    assert timestamp > 0
    assert devices[0] == {
        "index": 0.0,
        "utilization_percent": 97.0,
        "memory_used_mib": 211520.0,
        "memory_total_mib": 294896.0,
        "temperature_celsius": 71.0,
        "power_watts": 812.5,
        "power_limit_watts": None,
    }
    assert read_sample("\n".join(lines) + "\n", 0, {"0", "1"}, "amd-smi") == ({"0", "1"}, "")


def test_only_selected_gpus_are_sampled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert amd_sampler.main([stub(tmp_path, f"cat {FIXTURES}/metric_mi350x.json"), "1"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert line.split(", ")[1] == "1"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (f"cat {FIXTURES}/no_driver.txt; exit 255", "driver not initialized"),
        ("exit 0", "amd-smi printed nothing"),
    ],
)
def test_failing_amd_smi_is_a_gpu_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], script: str, text: str
) -> None:
    code = amd_sampler.main([stub(tmp_path, script)])
    output = capfd.readouterr().out
    assert code != 0 and text in output
    assert text in read_sample(output, code, {"0"}, "amd-smi")[1]
    assert amd_sampler.main([str(tmp_path / "missing")]) == 1


def test_a_hanging_amd_smi_is_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amd_sampler, "SMI_TIMEOUT", 0.2)
    assert amd_sampler.main([stub(tmp_path, "exec sleep 600")]) == 1
    assert "did not respond within 0.2 s" in capfd.readouterr().out


def test_timestamps_are_those_of_nvidia_smi() -> None:
    assert parse_time(amd_sampler.format_timestamp(1795000000.25)) == pytest.approx(1795000000.25, abs=0.002)


def test_supervisor_uses_amd_smi_only_for_samples() -> None:
    plan: Any = {"gpu_samples": ["python3"], "gpu_vendor": "amd"}
    assert (tool_of(plan).has_snapshot, tool_of(plan).has_accounting, health_command(plan)) == (False, False, [])
    del plan["gpu_vendor"]
    assert tool_of(plan).name == "nvidia-smi" and health_command(plan) == ["python3"]


def test_the_supervisor_program_takes_samples(tmp_path: Path) -> None:
    """supervisor.py runs the sampler in a separate process."""
    program = (
        "import sys; from ansible_collections.muster.training.plugins.module_utils._supervisor.entry import main; "
        "sys.exit(main(sys.argv[1:]))"
    )

    smi = stub(tmp_path, f"cat {FIXTURES}/metric_mi350x.json")
    completed = subprocess.run(
        [sys.executable, "-c", program, "--sample-amd-gpus", smi], capture_output=True, text=True, check=True
    )
    assert len(completed.stdout.splitlines()) == 2


JOB = ["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run of two nodes whose first node has AMD GPUs, with a fake amd-smi."""
    ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
    amd_run = make_run(tmp_path, [JOB] * 2, **ports, first_address=161)
    fails = f"[ ! -e {tmp_path}/lost ] || exec cat {FIXTURES}/no_driver.txt"
    smi = stub(tmp_path, f'echo "$*" >> {tmp_path}/calls\n{fails}\nexec cat {FIXTURES}/metric_mi350x.json')
    program = str(amd_run.node(0) / "supervisor.py")
    amd_run.plans[0].update(
        gpu_samples=[sys.executable, "-I", "-S", program, "--sample-amd-gpus", smi],
        gpu_vendor="amd",
        files={"gpus.csv": HEADER},
    )
    amd_run.plans[0]["timeouts"]["sample"] = 0.3
    yield amd_run
    end_by_force(amd_run)


def test_a_run_records_samples_and_reports_failing_gpus(run: Run, tmp_path: Path) -> None:
    run.start()
    samples = run.node(0) / "gpus.csv"
    eventually(lambda: samples.exists() and len(samples.read_text().splitlines()) > 4)
    gpus = run_status.read(run.request(0, wait=0))["run"]["gpus"]
    assert [gpu["power_watts"] for gpu in gpus["devices"]] == [812.5, 225.0]
    (tmp_path / "lost").touch()
    events = run.node(0) / "events.jsonl"
    eventually(lambda: "driver not initialized" in events.read_text())
    (tmp_path / "go").touch()
    run.wait_for("succeeded")
    assert set((tmp_path / "calls").read_text().splitlines()) == {" ".join(METRIC)}, "nothing else is asked of amd-smi"
    assert not (run.node(0) / "nvidia-smi.txt").exists() and not (run.node(0) / "accounting.csv").exists()
