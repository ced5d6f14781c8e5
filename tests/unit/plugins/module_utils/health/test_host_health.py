# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of this machine and of sysfs trees, and the identity of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._health import host_health, identity


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_memory_of_this_machine_is_read() -> None:
    memory = host_health.read_memory()
    assert 0 < memory["available_bytes"] <= memory["total_bytes"] and "swap_total_bytes" in memory


def test_ports_are_read_with_their_counters(tmp_path: Path) -> None:
    port = "mlx5_0/ports/1"
    write(
        tmp_path,
        {
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n",
            f"{port}/link_layer": "InfiniBand\n",
            f"{port}/rate": "400 Gb/sec (4X NDR)\n",
            f"{port}/counters/link_downed": "3\n",
            f"{port}/counters/symbol_error": "nonsense\n",
        },
    )
    assert host_health.read_ports(str(tmp_path)) == [
        {
            "name": "mlx5_0/1",
            "state": "ACTIVE",
            "physical": "LinkUp",
            "link": "InfiniBand",
            "rate": "400 Gb/sec (4X NDR)",
            "counters": {"link_downed": 3},
        }
    ]


def test_time_until_a_disk_is_full_is_forecast() -> None:
    forecast = host_health.DiskForecast()
    for second in range(0, 300, 15):
        forecast.add(second, 10_000 - 10 * second)
    assert forecast.seconds_left() == pytest.approx((10_000 - 10 * 285) / 10)
    forecast.add(300, 12_000)  # a checkpoint was removed
    assert forecast.seconds_left() is None
    assert host_health.free_bytes("/") and host_health.free_bytes("/missing") is None


def test_identity_omits_placeholders(tmp_path: Path) -> None:
    files = {"product_serial": "To Be Filled By O.E.M.", "board_asset_tag": "i-0abcdef1234567890", "id": "4ac3b7d1"}
    write(tmp_path, files)
    expected = {"serial": "", "asset": "i-0abcdef1234567890", "machine_id": "4ac3b7d1"}
    assert identity.read_identity(str(tmp_path), str(tmp_path / "id")) == expected
    assert identity.clean_serial_number("J1050ZX9") == "J1050ZX9"
    for text in ("Not Specified", "None", "0000000000", "Default string", "System Serial Number", ""):
        assert identity.clean_serial_number(text) == ""
