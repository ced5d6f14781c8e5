# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the links between GPUs and between nodes: fabric manager, peer access and RDMA."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, find_outliers
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._checks.gpus import check_driver
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import version_tuple
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

READY_STATES = {"completed", "not supported", "n/a", "[n/a]", "[not supported]"}
ROCE_V2 = "RoCE v2"
AUTOMATIC_GID_SINCE = (2, 21)  # NCCL chooses a RoCE v2 entry automatically
MANAGER_REMEDY = (
    "run sudo systemctl enable --now nvidia-fabricmanager on the node, and see sudo journalctl -u "
    "nvidia-fabricmanager for the reason"
)


def fabric_problem(links: dict[str, Any], driver: str) -> str:
    """Return the problem with a node's NVSwitch fabric, or "" if there is none."""
    states = Counter(
        f"{gpu['state']}, {gpu['status']}"
        for gpu in links["fabric"]
        if gpu["state"].lower() not in READY_STATES
        or (gpu["state"].lower() == "completed" and gpu["status"].lower() != "success")
    )
    if states:
        state, count = states.most_common(1)[0]
        return f"the fabric of {count} GPU{'' if count == 1 else 's'} is not ready: {state}"
    if not links["switches"]:
        return ""
    manager = links["manager"]
    if not manager["version"]:
        return f"the node has {links['switches']} NVSwitches, but no fabric manager" if not links["fabric"] else ""
    if driver and version_tuple(manager["version"]) != version_tuple(driver):
        return f"the fabric manager is version {manager['version']}, but the driver is {driver}"
    if manager["service"] not in ("active", "activating", ""):
        return f"the service nvidia-fabricmanager is {manager['service']}"
    return ""


def check_fabric(context: CheckContext) -> list[Finding]:
    """Check that GPUs behind NVSwitches are registered; until then, CUDA fails with "system not yet initialized"."""
    findings = []
    broken = {name for finding in check_driver(context) for name in finding.nodes if finding.severity == "error"}
    for node, links in context.nodes_with("links"):
        if node.name in broken:
            continue
        driver = context.facts[node.name]["gpus"]["driver"]["loaded"] or ""
        problem = fabric_problem(links, driver)
        if problem:
            remedy = MANAGER_REMEDY
            if "version" in problem or "no fabric manager" in problem:
                branch = driver.partition(".")[0]
                remedy = (
                    "install the version that matches the driver: sudo apt-get install "
                    f"nvidia-fabricmanager-{branch}={driver}-*"
                )
            findings.append(
                error(
                    "fabric-manager",
                    [node.name],
                    problem=problem,
                    requirement=(
                        "a running fabric manager with the driver's version: otherwise CUDA fails to initialize "
                        "(error 802)"
                    ),
                    remedy=remedy,
                )
            )
    return findings


def check_peer_access(context: CheckContext) -> list[Finding]:
    """Warn about GPUs without NVLink whose traffic is redirected by bridges or an IOMMU, because NCCL may hang."""
    reasons: dict[str, list[str]] = {}
    for node, links in context.nodes_with("links"):
        if context.facts[node.name]["gpu_count"] < 2 or links["nvlinks"] != 0 or node.slots < 2:
            continue
        if links["acs"]:
            reasons.setdefault("PCI bridges redirect the traffic between GPUs (ACS)", []).append(node.name)
        elif links["iommu"].startswith("DMA"):
            reasons.setdefault("the IOMMU translates the traffic between GPUs", []).append(node.name)
    if "NCCL_P2P_DISABLE" in context.environment:
        return []
    return [
        warning(
            "gpu-peer-access",
            names,
            problem=f"the GPUs have no NVLink, and {reason}: on some machines NCCL hangs or computes wrong results",
            requirement="GPUs that can access each other directly, or NCCL with such access disabled",
            remedy=(
                'if the run hangs at its first collective, launch with -e \'{"launch_environment": '
                '{"NCCL_P2P_DISABLE": "1"}}\'; better still, disable ACS in the firmware, or boot the kernel '
                "with iommu=pt"
            ),
        )
        for reason, names in reasons.items()
    ]


def rdma_ports(context: CheckContext) -> dict[str, list[dict[str, Any]]]:
    """Return each node's RDMA ports that NCCL would use."""
    if context.environment.get("NCCL_IB_DISABLE") == "1" or context.environment.get("NCCL_NET") == "Socket":
        return {}
    return {node.name: system["rdma_ports"] for node, system in context.nodes_with("system") if "rdma_ports" in system}


def check_rdma_states(context: CheckContext) -> list[Finding]:
    """Check that each node has the same number of active RDMA ports, with the same link layers."""
    ports = rdma_ports(context)
    findings = []
    active = {
        name: tuple(sorted(Counter(port["link"] for port in entries if port["state"] == "ACTIVE").items()))
        for name, entries in ports.items()
    }
    usual, odd = find_outliers(active)
    if odd:
        differences = format_list(f"{name} has {describe_ports(value)}" for name, value in odd.items())
        down = format_list(
            f"{port['name']} is {port['state'] or 'in an unknown state'}"
            for name in odd
            for port in ports[name]
            if port["state"] != "ACTIVE"
        )
        findings.append(
            warning(
                "rdma-ports",
                odd,
                problem=f"{differences}, the others {describe_ports(usual)}" + (f"; {down}" if down else ""),
                requirement=(
                    "the same active RDMA ports on all nodes: otherwise NCCL on one node would wait for a network "
                    "that another node does not use"
                ),
                remedy=(
                    "check the cable and the switch (ibstat, ip link) and, for InfiniBand, the subnet manager; "
                    'or use TCP: -e \'{"launch_environment": {"NCCL_IB_DISABLE": "1"}}\''
                ),
            )
        )
    return findings


def describe_ports(value: Any) -> str:
    """Describe a node's active ports, such as "8 InfiniBand ports"."""
    return (
        " and ".join(f"{count} active {link} port{'' if count == 1 else 's'}" for link, count in value) or "none active"
    )


def v2_indexes(port: dict[str, Any]) -> list[int]:
    """Return the indexes of a port's GIDs that RoCE v2 uses to route over IPv4."""
    return [gid["index"] for gid in port["gids"] if gid["type"] == ROCE_V2 and gid["ipv4"]]


def check_gids(context: CheckContext) -> list[Finding]:
    """Check that RoCE ports have a RoCE v2 address, at the same index on all nodes."""
    indexes = {
        name: tuple(sorted({tuple(v2_indexes(port)) for port in roce_ports(entries)}))
        for name, entries in rdma_ports(context).items()
        if roce_ports(entries)
    }
    if not indexes:
        return []
    requested = context.environment.get("NCCL_IB_GID_INDEX", "")
    if requested.isdigit():
        return check_requested_gid(indexes, int(requested))
    _usual, odd = find_outliers(indexes)
    if not odd or has_automatic_gid(context):
        return []
    return [
        warning(
            "rdma-gid",
            odd,
            problem="the RoCE v2 addresses are at different GID table indexes than on the other nodes: "
            + format_list(f"{name} {describe_indexes(indexes[name])}" for name in odd),
            requirement=f"the same index on all nodes for NCCL before {'.'.join(map(str, AUTOMATIC_GID_SINCE))}",
            remedy=(
                "give the interfaces addresses in the same order, or install a newer torch version, whose NCCL "
                "chooses the index itself"
            ),
        )
    ]


def describe_indexes(ports: tuple[tuple[int, ...], ...]) -> str:
    """Format the indexes of all ports on a node."""
    return format_list(str(index) for index in sorted({index for port in ports for index in port}))


def roce_ports(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the active RoCE ports; interfaces without an address are not used for training."""
    return [port for port in entries if port["link"] == "Ethernet" and port["state"] == "ACTIVE" and v2_indexes(port)]


def has_automatic_gid(context: CheckContext) -> bool:
    """Return whether each node's NCCL chooses the GID table entry automatically; assumed for unknown versions."""
    if context.job.image:
        return True
    versions = [software["packages"].get("nccl") for _node, software in context.nodes_with("software")]
    return all(version is None or version_tuple(version) >= AUTOMATIC_GID_SINCE for version in versions)


def check_requested_gid(indexes: dict[str, tuple[tuple[int, ...], ...]], requested: int) -> list[Finding]:
    """Check the GID index that the job sets."""
    wrong = [name for name, ports in indexes.items() if not any(requested in port for port in ports)]
    if not wrong:
        return []
    return [
        warning(
            "rdma-gid",
            wrong,
            problem=f"NCCL_IB_GID_INDEX is {requested}, but the RoCE v2 addresses are at "
            f"{describe_indexes(indexes[wrong[0]])}",
            requirement="the index of a RoCE v2 address on each node: otherwise NCCL fails with completion error 12",
            remedy="remove NCCL_IB_GID_INDEX from launch_environment (NCCL 2.21 and newer choose the index "
            "themselves), or correct it",
        )
    ]


def check_interconnect(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [
        *check_fabric(context),
        *check_peer_access(context),
        *check_rdma_states(context),
        *check_gids(context),
    ]
