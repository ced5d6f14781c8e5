"""The output of amd-smi; fixtures/amd_smi/README.md documents the source of each file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._health import amd_smi

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "amd_smi"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def test_devices_are_read_from_the_output_of_several_commands() -> None:
    identities = amd_smi.parse_identities(recorded("list_mi350x.json"))
    first, second = amd_smi.parse_devices(
        recorded("static_mi350x.json"), recorded("metric_mi350x.json"), recorded("ecc_mi350x.json"), identities
    )
    assert first == {
        "index": 0,
        "uuid": "abff75a0-0000-1000-80d1-3c23a9580558",
        "name": "AMD Instinct MI350X",
        "driver": "6.18.3",
        "memory_mib": 294896,
        "memory_used_mib": 211520,
        "compute_mode": "Default",
        "ecc_uncorrected": 0,
        "page_retirement_pending": False,
        "error": "",
        "target": "gfx950",
        "pci": "0000:05:00.0",
    }
    assert (second["index"], second["ecc_uncorrected"], second["memory_used_mib"]) == (1, 3, 284)


def test_recording_with_less_information_can_be_read() -> None:
    (device,) = amd_smi.parse_devices(recorded("static_mi210.json"), "", "", {})
    assert (device["name"], device["target"], device["memory_mib"]) == ("AMD Instinct MI210", "gfx90a", 65520)
    assert device["driver"] == "of kernel 6.14.0-24-generic"
    assert device["uuid"] == "amd-0" and device["memory_used_mib"] is None and device["ecc_uncorrected"] is None


def test_processes_that_hold_a_gpu_are_listed_with_its_uuid() -> None:
    identities = amd_smi.parse_identities(recorded("list_mi350x.json"))
    assert amd_smi.parse_processes(recorded("process_mi350x.json"), identities) == [
        {"gpu": "abff75a0-0000-1000-80d1-3c23a9580558", "pid": 3999999, "command": "python3", "memory_mib": 211510}
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("metric_mi350x.json", [(97.0, 211520.0, 294896.0, 71.0, 812.5), (0.0, 284.0, 294896.0, 42.0, 225.0)]),
        ("partitions_mi300x.json", [(0.0, 283.0, 196592.0, 41.0, 133.0), (None,) * 5]),
        ("usage_w7700.json", [(42.0, None, None, None, None)]),
        ("watch_apu.json", [(None,) * 5]),
        ("no_driver.txt", []),
    ],
)
def test_samples_have_the_values_that_the_gpu_reports(name: str, expected: list[Any]) -> None:
    columns = ("utilization_percent", "memory_used_mib", "memory_total_mib", "temperature_celsius", "power_watts")
    samples = amd_smi.parse_sample(recorded(name))
    assert [tuple(sample[column] for column in columns) for sample in samples] == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[" * 100_000,
        "null",
        '{"gpu_data": 3}',
        '[{"gpu": true}, {"gpu": -1}, {"gpu": "0"}, 7]',
        '[{"gpu": 1e400}]',
        json.dumps([{"gpu": 0, "usage": [], "power": {"socket_power": {"value": {}}}, "process_list": {"a": 1}}]),
        json.dumps([{"gpu": 0, "mem_usage": {"used_vram": {"value": 1, "unit": []}}, "process_list": [3, {}]}]),
    ],
)
def test_unexpected_output_yields_no_values(text: str) -> None:
    for sample in amd_smi.parse_sample(text):
        assert {value for name, value in sample.items() if name != "index"} == {None}
    assert amd_smi.parse_processes(text, {}) == []
    assert all(device["memory_mib"] is None for device in amd_smi.parse_devices(text, text, text, {}))


def test_memory_is_in_mebibytes_regardless_of_the_unit() -> None:
    values = [{"value": 2**30, "unit": "B"}, {"value": 1, "unit": "GB"}, 1024, {"value": 1024}]
    assert [amd_smi.parse_mebibytes(value) for value in values] == [1024.0, 1024.0, 1024.0, None]
