"""Links between GPUs and nodes: fabric manager, peer access, RDMA ports and their addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.healthy import Facts, Spoil, cluster, findings, rdma_ports, spoilt

ALL = ("node1", "node2", "node3", "node4")


def links(name: str, **values: Any) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        facts[name]["links"].update(values)

    return spoil


def ports(change: Callable[[Facts], None], *names: str) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        for name in names:
            for port in facts[name]["system"]["rdma_ports"]:
                change(port)

    return spoil


ACTIVE_MANAGER = {"version": "570.124.06", "service": "active"}


@pytest.mark.parametrize(
    ("values", "problem", "remedy"),
    [
        ({"switches": 4, "manager": ACTIVE_MANAGER}, "", ""),
        ({"fabric": [{"state": "N/A", "status": "N/A"}] * 8}, "", ""),
        ({"fabric": [{"state": "[Not Supported]", "status": "[Not Supported]"}] * 8}, "", ""),
        (
            {"fabric": [{"state": "In Progress", "status": "N/A"}] * 8, "switches": 4, "manager": ACTIVE_MANAGER},
            "the fabric of 8 GPUs is not ready: In Progress, N/A",
            "systemctl enable --now nvidia-fabricmanager",
        ),
        (
            {"fabric": [{"state": "Completed", "status": "Initialization Failure"}]},
            "the fabric of 1 GPU is not ready: Completed, Initialization Failure",
            "journalctl -u nvidia-fabricmanager",
        ),
        (
            {"switches": 4, "manager": {**ACTIVE_MANAGER, "version": "570.86.15"}},
            "the fabric manager is version 570.86.15, but the driver is 570.124.06",
            "nvidia-fabricmanager-570=570.124.06-",
        ),
        (
            {"switches": 4, "manager": {**ACTIVE_MANAGER, "service": "failed"}},
            "the service nvidia-fabricmanager is failed",
            "systemctl enable --now",
        ),
        (
            {"switches": 6, "fabric": [], "manager": {"version": "", "service": ""}},
            "the node has 6 NVSwitches, but no fabric manager",
            "nvidia-fabricmanager-570",
        ),
    ],
)
def test_fabric_must_be_ready_and_its_manager_match_the_driver(
    values: dict[str, Any], problem: str, remedy: str
) -> None:
    facts = cluster(2, gpu_count=8)
    facts["node2"]["links"].update(values)
    result = findings(facts)
    assert [(finding.severity, finding.id, finding.nodes) for finding in result] == (
        [("error", "fabric-manager", ("node2",))] if problem else []
    )
    assert all(problem in finding.problem and remedy in finding.remedy for finding in result)


def test_fabric_problem_is_not_reported_if_the_driver_is_broken() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        links("node1", fabric=[{"state": "In Progress", "status": "N/A"}])(facts)
        facts["node1"]["gpus"]["driver"]["library"] = "575.1"

    assert [finding[1] for finding in spoilt(spoil, 2, 8)] == ["driver-mismatch"]


@pytest.mark.parametrize(
    ("values", "environment", "text"),
    [
        ({"nvlinks": 0}, {}, ""),
        ({"nvlinks": 0, "acs": None, "iommu": "identity"}, {}, ""),
        ({"nvlinks": None, "acs": ["0000:40:01.0"]}, {}, ""),
        ({"acs": ["0000:40:01.0"], "iommu": "DMA"}, {}, ""),
        ({"nvlinks": 0, "acs": ["0000:40:01.0"]}, {}, "(ACS)"),
        ({"nvlinks": 0, "iommu": "DMA-FQ"}, {}, "the IOMMU translates"),
        ({"nvlinks": 0, "iommu": "DMA-FQ"}, {"NCCL_P2P_DISABLE": "1"}, ""),
    ],
)
def test_redirected_traffic_between_gpus_without_nvlink_is_a_warning(
    values: dict[str, Any], environment: dict[str, str], text: str
) -> None:
    facts = cluster(2, gpu_count=8)
    facts["node1"]["links"].update(values)
    result = [finding for finding in findings(facts, environment=environment) if finding.id != "gpudirect-acs"]
    assert [(finding.severity, finding.id) for finding in result] == ([("warning", "gpu-peer-access")] if text else [])
    assert all(text in finding.problem and "NCCL_P2P_DISABLE" in finding.remedy for finding in result)


def test_rdma_ports_must_be_active_on_all_nodes_or_none() -> None:
    down = ports(lambda port: port.update(state="DOWN"), "node3")
    assert spoilt(down, gpu_count=8) == [("warning", "rdma-ports", ("node3",))]
    facts = cluster(4, gpu_count=8)
    down(facts)
    (result,) = findings(facts)
    assert "node3 has none active, the others 2 active Ethernet ports; mlx5_0/1 is DOWN" in result.problem
    assert spoilt(down, gpu_count=8, environment={"NCCL_IB_DISABLE": "1"}) == []
    assert spoilt(ports(lambda port: port.update(state="DOWN"), *ALL), gpu_count=8) == []


def test_rdma_link_layers_must_agree() -> None:
    spoil = ports(lambda port: port.update(link="InfiniBand", gids=[]), "node1")
    assert spoilt(spoil, gpu_count=8) == [("warning", "rdma-ports", ("node1",))]


def move_gid(index: int) -> Callable[[Facts], None]:
    return lambda port: port["gids"][1].update(index=index)


@pytest.mark.parametrize(
    ("nccl", "environment", "text"),
    [
        ("2.26.2", {}, ""),
        ("2.18.1", {}, "node2 5"),
        ("2.26.2", {"NCCL_IB_GID_INDEX": "3"}, "NCCL_IB_GID_INDEX is 3, but the RoCE v2 addresses are at 5"),
        ("2.26.2", {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_DISABLE": "1"}, ""),
    ],
)
def test_roce_addresses_must_be_at_the_index_that_nccl_uses(nccl: str, environment: dict[str, str], text: str) -> None:
    facts = cluster(3, gpu_count=8)
    for node in facts.values():
        node["software"]["packages"]["nccl"] = nccl
    ports(move_gid(5), "node2")(facts)
    result = findings(facts, environment=environment)
    assert [(item.severity, item.id, item.nodes) for item in result] == (
        [("warning", "rdma-gid", ("node2",))] if text else []
    )
    assert all(text in item.problem for item in result)


def test_ports_without_an_address_are_not_used_for_training() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for node in facts.values():
            storage = {**rdma_ports(1)[0], "name": "mlx5_9/1", "gids": []}
            node["system"]["rdma_ports"].append(storage)

    assert spoilt(spoil, gpu_count=8, environment={"NCCL_IB_GID_INDEX": "3"}) == []
