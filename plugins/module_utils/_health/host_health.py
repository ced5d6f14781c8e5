# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine's health apart from its GPUs: memory and swap, InfiniBand ports, and disks that are filling up."""

from __future__ import annotations

import collections
import glob
import os

from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

PORTS = "/sys/class/infiniband"
MEMINFO = "/proc/meminfo"
MAX_PORTS = 64
# Port counters (kernel documentation, sysfs-class-infiniband) that increase because of a bad cable or connector.
PORT_COUNTERS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
MEMORY_FIELDS = {
    "MemTotal": "total_bytes",
    "MemAvailable": "available_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
}
WINDOW = 600.0  # seconds over which the growth of disk usage is measured
MIN_SPAN = 120.0  # seconds of samples required before a disk's growth is evaluated


def read_memory(path: str = MEMINFO) -> dict[str, int]:
    """Return this machine's memory and swap in bytes; fields that the kernel omits are missing."""
    values = {}
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            for line in stream:
                name, _colon, value = line.partition(":")
                if name in MEMORY_FIELDS and value.split()[:1] and value.split()[0].isdigit():
                    values[MEMORY_FIELDS[name]] = int(value.split()[0]) * 1024
    except OSError:
        return {}
    return values


def read_ports(root: str = PORTS) -> list[dict[str, Any]]:
    """Return each RDMA device port: name, state, physical state, rate and error counters."""
    ports = []
    for path in sorted(glob.glob(f"{glob.escape(root)}/*/ports/*"))[:MAX_PORTS]:
        device, _ports, port = path[len(root) + 1 :].split("/")
        values = {name: read_value(f"{path}/counters/{name}") for name in PORT_COUNTERS}
        ports.append(
            {
                "name": f"{device}/{port}",
                "state": read_value(f"{path}/state").partition(": ")[2],
                "physical": read_value(f"{path}/phys_state").partition(": ")[2],
                "link": read_value(f"{path}/link_layer"),
                "rate": read_value(f"{path}/rate"),
                "counters": {name: int(value) for name, value in values.items() if value.isdigit()},
            }
        )
    return ports


def free_bytes(path: str) -> int | None:
    """Return a disk's free space for this user, or None if it cannot be read."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


class DiskForecast:
    """A forecast of when a disk will be full, from samples of its free space. Pure."""

    def __init__(self) -> None:
        self.samples: collections.deque[tuple[float, int]] = collections.deque()

    def add(self, now: float, free: int) -> None:
        """Add a sample; now: seconds on any clock."""
        # space was freed: earlier growth says nothing about the remaining space
        if self.samples and free > self.samples[-1][1]:
            self.samples.clear()
        self.samples.append((now, free))
        while self.samples and now - self.samples[0][0] > WINDOW:
            self.samples.popleft()

    def seconds_left(self) -> float | None:
        """Return the seconds until the disk is full, or None if its usage is not growing or is unknown."""
        if len(self.samples) < 2:
            return None
        (start, free_at_start), (end, free) = self.samples[0], self.samples[-1]
        used = free_at_start - free
        if end - start < MIN_SPAN or used <= 0:
            return None
        return free / (used / (end - start))
