# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmark's ranks, their clocks and their hardware."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict

with contextlib.suppress(ImportError):  # without torch, it can only be imported
    import torch
    import torch.distributed as dist


WARM_UP_REPEATS, MIN_REPEATS, MAX_REPEATS = 2, 3, 20  # number of repetitions of an operation
MAX_OPERATION_SECONDS = 2.0  # seconds; if an operation takes longer, larger sizes are skipped
JsonDict = Dict[str, Any]  # Python 3.8 does not support dict[...] outside annotations


class Ranks:
    """The job's ranks: this rank, its node and device, and a gloo group for coordination."""

    def __init__(self) -> None:
        self.cuda = torch.cuda.is_available()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", self.local_rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        self.backend = "nccl" if self.cuda and dist.is_nccl_available() else "gloo"
        dist.init_process_group(self.backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.control_group = dist.new_group(backend="gloo")
        locations = self.gather((int(os.environ.get("GROUP_RANK", os.environ.get("NODE_RANK", "0"))), self.local_rank))
        self.nodes = sorted({node for node, _local in locations})
        self.node = locations[self.rank][0]
        self.members = {
            node: [rank for rank, location in enumerate(locations) if location[0] == node] for node in self.nodes
        }
        self.groups = {node: dist.new_group(ranks) for node, ranks in self.members.items()}
        self.leaders = [ranks[0] for ranks in self.members.values()]
        self.leader_group = dist.new_group(self.leaders, backend="gloo")

    def gather(self, value: Any) -> list[Any]:
        """Return each rank's value, by rank."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.control_group)
        return values

    def broadcast_value(self, value: float, group: Any = None, root: int = 0) -> float:
        """Return the root rank's value on all ranks."""
        tensor = torch.tensor([float(value)], dtype=torch.float64)
        dist.broadcast(tensor, root, group=group or self.control_group)
        return float(tensor[0])

    def reduce_max(self, times: list[float], group: Any = None) -> list[float]:
        """Return the longest time of any rank for each repetition."""
        tensor = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group or self.control_group)
        return tensor.tolist()

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier(group=self.control_group)

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""
        if self.cuda:
            torch.cuda.synchronize()


class PhaseClock:
    """The time limit for one phase, measured by rank 0 so that all ranks make the same decision."""

    def __init__(self, ranks: Ranks, seconds: float, group: Any = None) -> None:
        self.ranks, self.group, self.end = ranks, group, time.monotonic() + seconds

    def has_time(self, seconds: float) -> bool:
        """Return whether this many seconds remain."""
        return self.ranks.broadcast_value(time.monotonic() + seconds < self.end, self.group) > 0


def measure_seconds(ranks: Ranks, action: Callable[[], Any]) -> float:
    """Return how many seconds one call takes, including the work it starts on the device."""
    ranks.synchronize()
    start = time.perf_counter()
    action()
    ranks.synchronize()
    return time.perf_counter() - start


def describe_hardware(ranks: Ranks) -> JsonDict:
    """Return this rank's hardware."""
    record = {"rank": ranks.rank, "node": ranks.node, "local_rank": ranks.local_rank, "cores": os.cpu_count()}
    if ranks.cuda:
        properties = torch.cuda.get_device_properties(ranks.device)
        record.update(
            device=properties.name,
            memory_mib=properties.total_memory >> 20,
            capability=[properties.major, properties.minor],
        )
    else:
        record.update(device="cpu", memory_mib=None, capability=None)
    record["interface"] = os.environ.get("GLOO_SOCKET_IFNAME", "")
    record["interface_mbps"] = read_line_rate(record["interface"])
    rates = []
    try:
        for name in sorted(os.listdir("/sys/class/infiniband")):
            rates.append(read_number(f"/sys/class/infiniband/{name}/ports/1/rate"))
    except OSError:
        pass
    record["infiniband_gbps"] = [rate for rate in rates if rate]
    return record


def read_line_rate(interface: str, directory: str = "/sys/class/net") -> float | None:
    """Return an interface's speed in Mb/s, or None if it is unknown or fictitious; for example, veth always reports
    10,000.
    """
    return read_number(f"{directory}/{interface}/speed") if has_hardware(interface, directory) else None


def has_hardware(interface: str, directory: str, depth: int = 4) -> bool:
    """Return whether an interface is a device, or is built on a device, like bonds, bridges and VLANs."""
    if not interface:
        return False
    if os.path.exists(f"{directory}/{interface}/device"):
        return True
    try:
        entries = os.listdir(f"{directory}/{interface}")
    except OSError:
        return False
    lower_interfaces = [name[len("lower_") :] for name in entries if name.startswith("lower_")]
    return depth > 0 and any(has_hardware(lower, directory, depth - 1) for lower in lower_interfaces)


def read_number(path: str) -> float | None:
    """Return the number at the start of a kernel file, or None if there is no positive number."""
    try:
        with open(path, encoding="ascii") as stream:
            value = float(stream.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return value if value > 0 else None
