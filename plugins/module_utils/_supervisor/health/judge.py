# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a node's health from its readings, compared with the first readings of the run. Pure."""

from __future__ import annotations

import collections

from ansible_collections.muster.training.plugins.module_utils._health import gpu_health, host_health

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Iterator, Mapping, Sequence

    Readings = Mapping[str, Any]

# A problem on the node. key: unique among current problems. gpu: index of the GPU. is_hardware: whether the machine
# must not be used until the GPU has been reset or the machine has been repaired.
Problem = collections.namedtuple("Problem", "key text gpu is_hardware")

BUSY_PERCENT = 50.0  # utilization at which a GPU should be using its full link and clock speeds
NVLINK_ERRORS = 100  # number of errors since the start of the run beyond which a link is reported
DISK_SECONDS = 1800.0  # seconds; a disk that will be full sooner than this is reported
# fractions of memory available: reported below the first, healthy again above the second
LOW_MEMORY, ENOUGH_MEMORY = 0.03, 0.06
SWAP_SHARE = 0.5  # fraction of swap in use that is reported if little memory is available
PORT_ERRORS = {"link_downed": 1, "link_error_recovery": 3, "symbol_error": 1000, "port_rcv_errors": 1000}


def gpu_problems(first: Readings, now: Readings) -> Iterator[Problem]:
    """Yield each way in which the GPUs have deteriorated since the first readings of the run."""
    earlier = {gpu["uuid"]: gpu for gpu in first["devices"]}
    for gpu in now["devices"]:
        before = earlier.get(gpu["uuid"])
        if before is not None:
            yield from memory_problems(before, gpu, first["rows"], now["rows"])
            yield from link_problems(before, gpu)
    yield from nvlink_problems(first, now)
    for pace in now["pace"]:
        yield from pace_problems(pace, now["devices"])


def memory_problems(
    before: Mapping[str, Any], gpu: Mapping[str, Any], rows_before: Mapping[str, Any], rows: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield problems with a GPU's memory."""
    index, uuid = gpu["index"], gpu["uuid"]
    old, new = rows_before.get(uuid) or {}, rows.get(uuid) or {}
    if new.get("failure") and not old.get("failure"):
        text = f"GPU {index} has no spare memory rows left: have it replaced"
        yield Problem(f"rows {uuid}", text, index, True)
    elif new.get("pending") and not old.get("pending"):
        text = (
            f"GPU {index} has a broken memory row, which will be replaced when the GPU is reset or the node is rebooted"
        )
        yield Problem(f"rows {uuid}", text, index, False)
    errors = (gpu["ecc_aggregate"] or 0) - (before["ecc_aggregate"] or 0)
    if errors > 0:
        noun = "uncorrected memory error" if errors == 1 else f"{errors} uncorrected memory errors"
        yield Problem(
            f"ecc {uuid}", f"GPU {index} has had {'an ' if errors == 1 else ''}{noun} in this run", index, False
        )


def link_problems(before: Mapping[str, Any], gpu: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a loss of PCI Express lanes."""
    if gpu["pcie_width"] and before["pcie_width"] and gpu["pcie_width"] < before["pcie_width"]:
        text = f"GPU {gpu['index']} is using {gpu['pcie_width']} PCI Express lanes, down from {before['pcie_width']}"
        yield Problem(f"pcie {gpu['uuid']}", text, gpu["index"], False)


def nvlink_problems(first: Readings, now: Readings) -> Iterator[Problem]:
    """Yield NVLinks that went down, and those with many new errors."""
    earlier = {gpu["index"]: gpu for gpu in first["nvlinks"]}
    for gpu in now["nvlinks"]:
        before = earlier.get(gpu["index"], gpu)
        if len(gpu["active"]) < len(before["active"]):
            text = f"GPU {gpu['index']} has {len(gpu['active'])} active NVLinks, down from {len(before['active'])}"
            yield Problem(f"nvlink {gpu['index']}", text, gpu["index"], True)
        errors = gpu["errors"] - before["errors"]
        if errors >= NVLINK_ERRORS:
            text = f"the NVLinks of GPU {gpu['index']} have had {errors} errors in this run"
            yield Problem(f"nvlink errors {gpu['index']}", text, gpu["index"], False)


def pace_problems(pace: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what is slowing down a working GPU: throttling, or a PCI Express link below its speed."""
    reasons = gpu_health.throttle_reasons(pace["throttling"])
    if reasons:
        clock = f" at {pace['clock']:.0f} MHz" if pace["clock"] is not None else ""
        text = f"GPU {pace['index']} is running at a reduced clock{clock}: {', '.join(reasons)}"
        yield Problem(f"throttled {pace['index']}", text, pace["index"], False)
    if (pace["utilization"] or 0.0) < BUSY_PERCENT:
        return  # an idle GPU saves power: its link is deliberately slow
    for gpu in devices:
        current, best = gpu["pcie_gen"], gpu["pcie_gen_max"]
        if gpu["index"] == pace["index"] and current and best and current < best:
            text = f"GPU {gpu['index']} uses PCI Express {current} under load, but supports {best}"
            yield Problem(f"pcie speed {gpu['index']}", text, gpu["index"], False)


def port_problems(first: Sequence[Readings], now: Sequence[Readings]) -> Iterator[Problem]:
    """Yield RDMA ports that are no longer active, and those with new errors."""
    earlier = {port["name"]: port for port in first}
    for port in now:
        before = earlier.get(port["name"])
        if before is None:
            continue
        if before["state"] == "ACTIVE" and port["state"] != "ACTIVE":
            text = (
                f"RDMA port {port['name']} is {port['state'] or 'in an unknown state'}, but was active when the "
                "run started"
            )
            yield Problem(f"port {port['name']}", text, None, False)
        for name, limit in PORT_ERRORS.items():
            errors = port["counters"].get(name, 0) - before["counters"].get(name, 0)
            if errors >= limit:
                text = (
                    f"the {name} counter of RDMA port {port['name']} has increased by {errors} in this run: check "
                    "the cable and the switch"
                )
                yield Problem(f"port {port['name']} {name}", text, None, False)


def memory_shortage(memory: Mapping[str, int], was_low: bool) -> Iterator[Problem]:
    """Yield a memory shortage. was_low: whether the last reading showed one, too."""
    total, available = memory.get("total_bytes", 0), memory.get("available_bytes")
    if not total or available is None:
        return
    if available >= (ENOUGH_MEMORY if was_low else LOW_MEMORY) * total:
        return
    swap, free = memory.get("swap_total_bytes", 0), memory.get("swap_free_bytes", 0)
    swapped = f"; {(swap - free) / 2**30:.1f} GiB is in swap" if swap and swap - free > SWAP_SHARE * swap else ""
    text = f"only {available / 2**30:.1f} of {total / 2**30:.1f} GiB of memory is available{swapped}"
    yield Problem("memory", text, None, False)


def disk_shortage(path: str, free: int, forecast: host_health.DiskForecast) -> Iterator[Problem]:
    """Yield a disk that will soon be full if its usage keeps growing."""
    seconds = forecast.seconds_left()
    if seconds is not None and seconds < DISK_SECONDS:
        text = (
            f"the disk that holds {path} will be full in {max(1, round(seconds / 60))} min: {free / 2**30:.1f} GiB "
            "is free"
        )
        yield Problem("disk", text, None, False)
