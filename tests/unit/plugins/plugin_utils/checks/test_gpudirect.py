# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path between GPUs and RDMA adapters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.healthy import Facts, Spoil, cluster, findings, spoilt

NONE = {"gpudirect": {"peermem": False, "dma_buf": False}}


def links(values: dict[str, Any], driver: str = "mlx5_core", state: str = "ACTIVE") -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        facts["node2"]["links"].update(values)
        for node in facts.values():
            for port in node["system"]["rdma_ports"]:
                port.update(driver=driver, state=state)

    return spoil


@pytest.mark.parametrize(
    ("values", "options", "environment", "reported"),
    [
        (NONE, {}, {}, True),
        ({"gpudirect": {"peermem": True, "dma_buf": False}}, {}, {}, False),
        ({"gpudirect": {"peermem": False, "dma_buf": True}}, {}, {}, False),
        (NONE, {"driver": "efa"}, {}, False),
        (NONE, {"state": "DOWN"}, {}, False),
        (NONE, {}, {"NCCL_IB_DISABLE": "1"}, False),
        (NONE, {}, {"NCCL_NET_GDR_LEVEL": "LOC"}, False),
    ],
)
def test_adapters_without_access_to_gpu_memory_are_a_warning(
    values: dict[str, Any], options: dict[str, str], environment: dict[str, str], reported: bool
) -> None:
    result = spoilt(links(values, **options), gpu_count=8, environment=environment)
    assert result == ([("warning", "gpudirect-rdma", ("node2",))] if reported else [])


def test_remedy_is_a_command() -> None:
    facts = cluster(2, gpu_count=8)
    links(NONE)(facts)
    (finding,) = findings(facts)
    assert "sudo modprobe nvidia_peermem" in finding.remedy


@pytest.mark.parametrize(
    ("values", "environment", "identifier"),
    [
        ({"acs": ["0000:40:01.0"]}, {}, "gpudirect-acs"),
        ({"acs": None}, {}, ""),
        ({"acs": ["0000:40:01.0"]}, {"NCCL_NET": "Socket"}, ""),
        ({"acs": ["0000:40:01.0"], "nvlinks": 0}, {}, "gpu-peer-access"),
    ],
)
def test_bridges_that_redirect_traffic_are_reported_once(
    values: dict[str, Any], environment: dict[str, str], identifier: str
) -> None:
    result = spoilt(links(values), gpu_count=8, environment=environment)
    assert result == ([("warning", identifier, ("node2",))] if identifier else [])
