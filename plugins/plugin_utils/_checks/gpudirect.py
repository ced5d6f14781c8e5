# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the path between GPUs and RDMA adapters: GPUDirect RDMA, and PCI bridges that redirect the traffic."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, warning
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate

EFA_DRIVER = "efa"  # this driver has its own check for GPU memory


def nodes_with_rdma(context: CheckContext) -> set[str]:
    """Return the names of nodes whose GPUs reach other nodes through RDMA adapters other than EFA."""
    environment = context.environment
    refused = environment.get("NCCL_IB_DISABLE") == "1" or environment.get("NCCL_NET") == "Socket"
    if refused or context.table.nnodes < 2:
        return set()
    return {
        node.name
        for node, system in context.nodes_with("system")
        if any(port["state"] == "ACTIVE" and port["driver"] != EFA_DRIVER for port in system.get("rdma_ports", ()))
    }


def check_gpudirect_rdma(context: CheckContext) -> list[Finding]:
    """Warn about nodes whose RDMA adapters cannot access GPU memory, so that each transfer goes through host memory."""
    if context.environment.get("NCCL_NET_GDR_LEVEL") in ("LOC", "0"):
        return []
    with_rdma = nodes_with_rdma(context)
    names = [
        node.name
        for node, links in context.nodes_with("links")
        if node.name in with_rdma and links.get("gpudirect") and not any(links["gpudirect"].values())
    ]
    if not names:
        return []
    return [
        warning(
            "gpudirect-rdma",
            names,
            problem=(
                "the RDMA adapters cannot access GPU memory: the nvidia_peermem module is not loaded, and the "
                "driver does not share memory as dma-buf"
            ),
            requirement="GPUDirect RDMA: without it, NCCL copies everything between nodes through the host's memory",
            remedy=(
                "on each of these nodes, run sudo modprobe nvidia_peermem, and for the next boot, run echo "
                "nvidia_peermem | sudo tee /etc/modules-load.d/nvidia_peermem.conf. NVIDIA's open kernel modules on "
                "Linux 5.12 or newer do not need this module"
            ),
        )
    ]


def check_adapter_access(context: CheckContext) -> list[Finding]:
    """Warn of PCI bridges that redirect traffic between GPUs and RDMA adapters; gpu-peer-access covers other GPUs."""
    with_rdma = nodes_with_rdma(context)
    redirecting = {
        node.name: links["acs"]
        for node, links in context.nodes_with("links")
        if node.name in with_rdma and links["acs"] and (links["nvlinks"] != 0 or node.slots < 2)
    }
    if not redirecting:
        return []
    bridges = sorted({bridge for names in redirecting.values() for bridge in names})
    return [
        warning(
            "gpudirect-acs",
            redirecting,
            problem=f"PCI bridges redirect the traffic between GPUs and RDMA adapters (ACS): {abbreviate(bridges)}",
            requirement="bridges that forward this traffic directly: otherwise GPUDirect RDMA goes through the CPU, "
            "at a fraction of its bandwidth",
            remedy=(
                "disable ACS in the firmware, or at each boot run sudo setpci -s BRIDGE ECAP_ACS+6.w=0000 for each "
                "of these bridges. This removes the isolation between virtual machines on the host"
            ),
        )
    ]


def check_gpudirect(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [*check_gpudirect_rdma(context), *check_adapter_access(context)]
