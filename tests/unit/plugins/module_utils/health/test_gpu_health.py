# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of GPUs, from nvidia-smi output."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._health import gpu_health

DEVICES = """index, uuid, serial, pci.bus_id, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, \
pcie.link.width.max, ecc.errors.uncorrected.aggregate.total
0, GPU-a, 1654923012345, 00000000:18:00.0, 5, 5, 16, 16, 0
1, GPU-b, [N/A], 00000000:2A:00.0, 1, 5, 8, 16, [N/A]
"""
ROWS = """gpu_uuid, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure
GPU-a, 0, 0, 0, 0
GPU-b, 0, 2, 1, 0
GPU-c, [N/A], [N/A], [N/A], [N/A]
GPU-d, 0, 8, No, Yes
"""
PACE = """index, uuid, clocks.current.sm [MHz], clocks.max.sm [MHz], power.draw [W], power.limit [W], \
utilization.gpu [%], clocks_throttle_reasons.active
0, GPU-a, 1980, 1980, 612.41, 700.00, 98, 0x0000000000000004
1, GPU-b, 345, 1980, 140.02, 700.00, 100, 0x0000000000000048
"""
STATUS = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
"""
ERRORS = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0

GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)
\t Link 0: Replay Errors: 120
\t Link 0: Recovery Errors: 1
\t Link 0: CRC Errors: 4
"""


def test_devices() -> None:
    first, second = gpu_health.parse_devices(DEVICES)
    assert (first["serial"], first["pcie_width"], first["ecc_aggregate"]) == ("1654923012345", 16, 0)
    assert (second["serial"], second["pcie_width"], second["pcie_width_max"]) == ("", 8, 16)
    assert (second["pcie_gen"], second["ecc_aggregate"]) == (1, None)
    assert gpu_health.parse_devices('Field "x" is not a valid field to query.\n') == []


def test_remapped_rows_are_read() -> None:
    rows = gpu_health.parse_remapped(ROWS)
    assert rows["GPU-a"] == {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False}
    assert (rows["GPU-b"]["pending"], rows["GPU-b"]["failure"]) == (True, False)
    assert rows["GPU-c"] == {"correctable": None, "uncorrectable": None, "pending": False, "failure": False}
    assert rows["GPU-d"]["failure"]


def test_throttling_is_read() -> None:
    first, second = (("index", field) for field in gpu_health.THROTTLE_FIELDS)
    lines = "index, clocks_throttle_reasons.active\n0, 0x0000000000000001\n1, 0x40\n"
    assert gpu_health.parse_throttling(lines, first) == [1, 0x40]
    assert gpu_health.parse_throttling("index, clocks_event_reasons.active\n0, 0x8\n", second) == [8]
    assert gpu_health.parse_throttling('Field "clocks_throttle_reasons.active" is not a valid field', first) == []
    assert gpu_health.parse_throttling("index\n0\n", ("index",)) == []
    assert gpu_health.throttle_reasons(0x4) == [], "a power limit that is reached is usual under load"
    assert gpu_health.throttle_reasons(0x48) == ["hardware slowdown", "hardware thermal slowdown"]


def test_pace() -> None:
    first, second = gpu_health.parse_pace(PACE)
    assert (first["clock"], first["power"], first["utilization"]) == (1980.0, 612.41, 98.0)
    assert (second["clock"], second["throttling"]) == (345.0, 0x48)


def test_nvlinks() -> None:
    assert gpu_health.parse_nvlinks(STATUS, ERRORS) == [
        {"index": 0, "active": [0, 1], "inactive": [], "errors": 0},
        {"index": 1, "active": [0], "inactive": [1], "errors": 125},
    ]
    assert gpu_health.parse_nvlinks("GPU 0: NVIDIA L40S (UUID: GPU-1)\n", "") == []
