# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the nodes' health: GPU errors, memory rows, throttling, PCI Express, NVLink, RDMA ports, host memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import (
    MACHINE,
    GpuError,
    describe_error,
    normalize_pci,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import (
    CheckContext,
    find_outliers,
    format_gib,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

MAX_ECC_ERRORS = 10  # number of uncorrected errors over a GPU's lifetime at which it is reported
MAX_NVLINK_ERRORS = 100  # number of errors since the driver was loaded at which a link is reported
MIN_MEMORY_SHARE = 0.05  # fraction of a machine's memory that should be available
MAX_SWAP_SHARE = 0.5  # fraction of a machine's swap space that may be in use
# Number of errors on an RDMA port since boot at which it is reported; a link goes down once or twice at boot.
MAX_PORT_ERRORS = {
    "link_downed": 10,
    "link_error_recovery": 10,
    "symbol_error": 1000,
    "port_rcv_errors": 1000,
    "local_link_integrity_errors": 10,
    "excessive_buffer_overrun_errors": 10,
}
REPLACE_REMEDY = "reset the GPU (sudo nvidia-smi -r) or reboot the node; have it replaced if the error returns"


def used_gpus(context: CheckContext, name: str, health: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the health of a node's GPUs that the job uses."""
    gpus = context.facts[name].get("gpus") or {}
    used = {device["uuid"] for device in gpus.get("devices", ())} if "selected" in gpus else None
    return [gpu for gpu in health["gpus"] if used is None or gpu["uuid"] in used]


def check_errors(context: CheckContext) -> Iterator[Finding]:
    """Report kernel log errors that require a reset or a repair according to NVIDIA."""
    for node, health in context.nodes_with("health"):
        if not health["kernel_log"]:
            continue
        names = {normalize_pci(gpu["pci"]): f"GPU {gpu['index']}" for gpu in health["gpus"] if gpu["pci"]}
        used = {normalize_pci(gpu["pci"]) for gpu in used_gpus(context, node.name, health) if gpu["pci"]}
        for fields in health["kernel_log"]["errors"]:
            is_unused = fields["kind"] == "Xid" and fields["pci"] in names and fields["pci"] not in used
            if fields["level"] != MACHINE or is_unused:
                continue
            gpu_error = GpuError(*(fields[name] for name in GpuError._fields))
            age = format_duration(max(0.0, time.time() - fields["time"]))
            text = describe_error(gpu_error, names.get(gpu_error.pci, ""))
            yield warning(
                "gpu-xid",
                [node.name],
                problem=f"{age} ago, the driver reported {text}",
                requirement="GPUs without such errors since boot",
                remedy=f"{REPLACE_REMEDY}. If the GPU has been reset since then, add -e preflight_skip=gpu-xid",
            )


def check_rows(context: CheckContext) -> Iterator[Finding]:
    """Report GPUs with memory rows that could not be remapped, will be at the next reset, or had many errors."""
    for node, health in context.nodes_with("health"):
        for gpu in used_gpus(context, node.name, health):
            rows = gpu["rows"] or {}
            if rows.get("failure"):
                yield error(
                    "gpu-memory-rows",
                    [node.name],
                    problem=f"GPU {gpu['index']} has no spare memory rows left: a row could not be remapped",
                    requirement="a GPU that can replace broken rows of its memory",
                    remedy="have the GPU replaced; until then leave the node out (-e nodes=...)",
                )
            elif rows.get("pending"):
                yield warning(
                    "gpu-memory-rows",
                    [node.name],
                    problem=f"GPU {gpu['index']} will remap a broken memory row at its next reset",
                    requirement="no broken memory row in use",
                    remedy="reset the GPU (sudo nvidia-smi -r) or reboot the node",
                )
            if (gpu["ecc_aggregate"] or 0) >= MAX_ECC_ERRORS:
                yield warning(
                    "gpu-memory-history",
                    [node.name],
                    problem=f"GPU {gpu['index']} has had {gpu['ecc_aggregate']} uncorrected memory errors so far",
                    requirement=f"fewer than {MAX_ECC_ERRORS}",
                    remedy="run dcgmi diag -r 3 on the node, and have the GPU replaced if it fails",
                )


def check_speed(context: CheckContext) -> Iterator[Finding]:
    """Report GPUs that are throttled although idle, or that use fewer PCI Express lanes than they could."""
    throttled: dict[str, list[str]] = {}
    for node, health in context.nodes_with("health"):
        gpus = used_gpus(context, node.name, health)
        for gpu in gpus:
            for reason in gpu["throttling"]:
                throttled.setdefault(reason, []).append(node.name)
        narrow = [
            f"GPU {gpu['index']} is using {gpu['pcie_width']} of {gpu['pcie_width_max']} PCI Express lanes"
            for gpu in gpus
            if gpu["pcie_width"] and gpu["pcie_width_max"] and gpu["pcie_width"] < gpu["pcie_width_max"]
        ]
        if narrow:
            yield warning(
                "gpu-pcie-narrow",
                [node.name],
                problem=format_list(narrow, 4),
                requirement="all lanes: with fewer, data reaches the GPU more slowly, and the other nodes wait for it",
                remedy="reboot the node; if that does not help, reseat the GPU or have it replaced",
            )
    for reason, names in throttled.items():
        yield warning(
            "gpu-throttled",
            dict.fromkeys(names),
            problem=f"GPUs are running at a reduced clock: {reason}",
            requirement="GPUs at their full clock: the slowest one sets the pace of the run",
            remedy="check cooling and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        )


def check_nvlinks(context: CheckContext) -> Iterator[Finding]:
    """Report GPUs that have fewer active NVLinks than most others, or many NVLink errors."""
    counts: Counter[int] = Counter()
    for _node, health in context.nodes_with("health"):
        counts.update(len(gpu["active"]) for gpu in health["nvlinks"] if gpu["active"])
    usual = max(counts, key=lambda count: (counts[count], count), default=0)
    for node, health in context.nodes_with("health"):
        down = [
            f"GPU {gpu['index']} has {len(gpu['active'])} of {usual}"
            for gpu in health["nvlinks"]
            if len(gpu["active"]) < usual
        ]
        if down:
            yield warning(
                "nvlink-down",
                [node.name],
                problem=f"NVLinks are down: {format_list(down, 4)}",
                requirement="the same links on all GPUs: NCCL otherwise goes through PCI Express, or fails",
                remedy="run nvidia-smi nvlink --status on the node, then reboot it; have it repaired if links stay "
                "down",
            )
        faulty = [
            f"GPU {gpu['index']} has {gpu['errors']}" for gpu in health["nvlinks"] if gpu["errors"] >= MAX_NVLINK_ERRORS
        ]
        if faulty:
            yield warning(
                "nvlink-errors",
                [node.name],
                problem=f"errors on NVLinks since the driver was loaded: {format_list(faulty, 4)}",
                requirement=f"fewer than {MAX_NVLINK_ERRORS}",
                remedy="run nvidia-smi nvlink -e on the node; have the links checked if their counters grow",
            )


def check_ports(context: CheckContext) -> Iterator[Finding]:
    """Report active RDMA ports that have many errors, and nodes whose ports are slower than those on most nodes."""
    if context.environment.get("NCCL_IB_DISABLE") == "1" or context.environment.get("NCCL_NET") == "Socket":
        return
    rates = {}
    for node, health in context.nodes_with("health"):
        active = [port for port in health["ports"] if port["state"] == "ACTIVE"]
        if active:
            rates[node.name] = ", ".join(sorted({port["rate"] for port in active if port["rate"]}))
        faulty = [
            f"{port['name']} {name} {port['counters'][name]}"
            for port in active
            for name, limit in MAX_PORT_ERRORS.items()
            if port["counters"].get(name, 0) >= limit
        ]
        if faulty:
            yield warning(
                "rdma-errors",
                [node.name],
                problem=f"an RDMA port has errors: {format_list(faulty, 4)}",
                requirement="ports without errors: each error causes a retransmission, for which all nodes wait",
                remedy="check the cable and the switch port: sudo perfquery on the node shows whether the "
                "counters grow",
            )
    usual, slow = find_outliers(rates)
    if slow:
        yield warning(
            "rdma-rate",
            slow,
            problem=(
                f"RDMA ports are running at {format_list((f'{rate} on {name}' for name, rate in slow.items()))}, the "
                f"others at {usual}"
            ),
            requirement="the same rate on all nodes: the slowest one sets the pace",
            remedy=("check the cable and the switch port (ibstat); the link may have been negotiated with fewer lanes"),
        )


def check_memory(context: CheckContext) -> Iterator[Finding]:
    """Report nodes that have little available memory, or less than twice that limit and most of their swap in use."""
    for node, health in context.nodes_with("health"):
        memory = health["memory"]
        total, available = memory.get("total_bytes", 0), memory.get("available_bytes", 0)
        swap, swap_free = memory.get("swap_total_bytes", 0), memory.get("swap_free_bytes", 0)
        problems = []
        if total and "available_bytes" in memory and available < MIN_MEMORY_SHARE * total:
            problems.append(f"only {format_gib(available)} of {format_gib(total)} of memory is available")
        if swap and swap - swap_free > MAX_SWAP_SHARE * swap and available < 2 * MIN_MEMORY_SHARE * total:
            problems.append(f"{format_gib(swap - swap_free)} of {format_gib(swap)} of swap is in use")
        if problems:
            yield warning(
                "memory-low",
                [node.name],
                problem=" and ".join(problems),
                requirement="memory for the job: the kernel kills processes when memory runs out",
                remedy="end other programs on the node; to list them: ps aux --sort=-rss | head",
            )


def check_node_health(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    checks = (check_errors, check_rows, check_speed, check_nvlinks, check_ports, check_memory)
    return [finding for check in checks for finding in check(context)]
