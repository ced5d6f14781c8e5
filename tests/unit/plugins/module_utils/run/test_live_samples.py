# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of all nodes during a run: storage, reading, and protection from hostile jobs and nodes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import live_samples
from ansible_collections.muster.training.plugins.module_utils._run.live_samples import (
    read_samples,
    thin,
    validate_sample,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor import live_sampling
from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
from ansible_collections.muster.training.plugins.module_utils._supervisor.live_sampling import (
    NodeSampler,
    SampleLog,
    take_sample,
)

PLAN: Any = {"timeouts": {"sample": 0.0}, "run_id": "r"}
START = [0, 0, 0]


def sample(**fields: Any) -> str:
    gpu = {
        "index": 0,
        "utilization_percent": 97.0,
        "memory_used_mib": 100.0,
        "memory_total_mib": 200.0,
        "temperature_celsius": 60.0,
        "power_watts": 600.0,
    }
    defaults = {"gpus": [gpu], "memory_used": 1, "memory_total": 2, "disk_free": 3, "disk_total": 4}
    return json.dumps({**defaults, **fields})


@pytest.fixture
def log(tmp_path: Path) -> SampleLog:
    return SampleLog(Journal(str(tmp_path), PLAN), PLAN)


def test_a_reader_gets_each_sample_once_in_order(log: SampleLog) -> None:
    for free in (10, 20):
        log.take("gpu0", sample(disk_free=free))
    first, cursor = read_samples(log.path, START)
    log.take("gpu1", sample(disk_free=30))
    second, cursor = read_samples(log.path, cursor)
    assert [entry["disk_free"] for entry in first] == [10, 20]
    assert [(entry["node"], entry["disk_free"]) for entry in second] == [("gpu1", 30)]
    assert read_samples(log.path, cursor)[0] == []


def test_the_file_stays_small_and_no_reader_gets_a_sample_twice(
    log: SampleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_sampling, "MAX_FILE_BYTES", 20_000)
    cursor, received = START, []
    for number in range(600):
        log.take(f"gpu{number % 3}", sample(disk_free=number))
        if number % 7 == 0:
            samples, cursor = read_samples(log.path, cursor)
            received += samples
        assert os.path.getsize(log.path) < 21_000
    received += read_samples(log.path, cursor)[0]
    assert [entry["disk_free"] for entry in received] == list(range(600))
    late, _cursor = read_samples(log.path, START)
    assert late[0]["disk_free"] == 0 and late[-1]["disk_free"] == 599
    assert {entry["node"] for entry in late} == {"gpu0", "gpu1", "gpu2"}


def line_of(node: str, number: int, seconds: float) -> bytes:
    return b'{"node": "%s", "number": %d, "time": %r, "gpus": []}\n' % (node.encode(), number, seconds)


def test_thinning_keeps_the_newest_quarter_and_half_of_the_rest() -> None:
    lines = [line_of(f"gpu{number % 2}", number, 100.0 + number) for number in range(400)]
    thinned = thin([*lines[:5], b"nothing\n", *lines[5:]])
    assert thinned[-100:] == lines[300:] and 240 <= len(thinned) <= 260
    assert sum(b"gpu0" in line for line in thinned) == len(thinned) // 2


def test_repeated_thinning_keeps_samples_of_the_whole_run() -> None:
    lines: list[bytes] = []
    for number in range(20_000):
        lines.append(line_of("gpu0", number, 1.5e9 + 15 * number))
        if len(lines) > 400:
            lines = thin(lines)
    numbers = [int(line.split(b'"number": ')[1].split(b",")[0]) for line in lines]
    assert numbers[0] == 0 and numbers[-1] == 19_999
    gaps = [after - before for before, after in zip(numbers, numbers[1:], strict=False)]
    assert max(gaps) < 20_000 / 20


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        sample(gpus={}),
        sample(gpus=[{"index": -1}]),
        sample(gpus=[{"index": 0, "power_watts": "many"}]),
        sample(memory_used=float("nan")),
        sample(disk_free=True),
        sample(gpus=[{"index": number} for number in range(65)]),
    ],
)
def test_invalid_samples_are_dropped(log: SampleLog, text: str) -> None:
    log.take("gpu0", text)
    assert validate_sample(text) is None and not os.path.exists(log.path)


def test_unknown_fields_are_dropped() -> None:
    assert "markup" not in json.dumps(validate_sample(sample(markup="<b>", gpus=[{"index": 0, "markup": "<b>"}])))


def test_a_node_cannot_send_more_samples_than_the_interval_allows(tmp_path: Path) -> None:
    plan: Any = {**PLAN, "timeouts": {"sample": 1000.0}}
    log = SampleLog(Journal(str(tmp_path), plan), plan)
    for _number in range(10):
        log.take("gpu0", sample())
        log.take("gpu1", sample())
    assert len(read_samples(log.path, START)[0]) == 2


def test_reader_survives_arbitrary_job_files(tmp_path: Path) -> None:
    path = tmp_path / live_samples.FILE
    assert read_samples(str(path), START) == ([], START)
    os.mkfifo(path)
    assert read_samples(str(path), START) == ([], START)
    path.unlink()
    good = json.dumps({"node": "gpu0", "number": 1, "time": 1.0, **json.loads(sample())})
    path.write_bytes(b"\xff\n{}\n" + good.encode() + b'\n{"node": "cut')
    assert [entry["number"] for entry in read_samples(str(path), START)[0]] == [1]
    path.write_bytes(b"x" * (2 * live_samples.CHUNK))
    cursor = START
    for _reply in range(3):
        samples, cursor = read_samples(str(path), cursor)
        assert samples == []
    assert cursor[1] >= 2 * live_samples.CHUNK


def test_a_node_samples_only_while_its_job_runs(tmp_path: Path) -> None:
    plan: Any = {**PLAN, "timeouts": {"sample": 10.0}}
    sampler = NodeSampler(Journal(str(tmp_path), plan), plan)
    assert sampler.step(1.0, running=False) == []
    ((kind, text),) = sampler.step(1.0, running=True)
    node_sample = validate_sample(text)
    assert kind == live_sampling.SAMPLE_KIND and node_sample is not None
    assert (
        0 < node_sample["memory_used"] < node_sample["memory_total"]
        and 0 < node_sample["disk_free"] <= node_sample["disk_total"]
    )
    assert sampler.step(10.9, running=True) == [] and len(sampler.step(11.0, running=True)) == 1


def test_a_sample_has_the_gpus_as_nvidia_smi_prints_them(tmp_path: Path) -> None:
    now = time.strftime("%Y/%m/%d %H:%M:%S")
    (tmp_path / "gpus.csv").write_text(f"{now}.123, 3, 97, 72914, 81559, 64, 641.27, 700.00\n")
    node_sample = validate_sample(json.dumps(take_sample(str(tmp_path))))
    assert node_sample is not None and [(gpu["index"], gpu["power_watts"]) for gpu in node_sample["gpus"]] == [
        (3, 641.27)
    ]


def test_old_gpu_sample_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "gpus.csv").write_text("2026/11/22 10:15:00.123, 0, 97, 72914, 81559, 64, 641.27, 700.00\n")
    assert take_sample(str(tmp_path))["gpus"] == []
