# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's health before a run: its identity, GPU errors in the kernel log, GPUs, RDMA ports, memory and swap."""

from __future__ import annotations

import os
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command
from ansible_collections.muster.training.plugins.module_utils._facts.gpus import SMI_TIMEOUT, count_pci_gpus, find_smi
from ansible_collections.muster.training.plugins.module_utils._health import gpu_health, host_health
from ansible_collections.muster.training.plugins.module_utils._health.identity import read_identity
from ansible_collections.muster.training.plugins.module_utils._health.kernel_log import (
    RING,
    boot_time,
    find_errors,
    journal_command,
    parse_journal,
    parse_record,
    read_records,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

# Fields of the device query: a driver that does not support the last field rejects the whole query.
DEVICE_QUERIES = (
    *((*gpu_health.DEVICE_FIELDS, field) for field in gpu_health.THROTTLE_FIELDS),
    gpu_health.DEVICE_FIELDS,
)
INVALID_FIELD = "is not a valid field to query"
JOURNAL_LINES = "20000"  # maximum number of lines read: weeks of logs on a typical machine


class KernelLogQuery:
    """A query for the kernel log since boot, started on creation."""

    def __init__(self, ring: str = RING) -> None:
        self.command: Command | None = None
        self.messages: list[tuple[float, str]] = []
        self.error = ""
        try:
            descriptor = os.open(ring, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.error = error.strerror or str(error)
            command = journal_command("-n", JOURNAL_LINES)
            self.command = Command(command, env={**os.environ, "LC_ALL": "C"}) if command else None
            return
        boot = boot_time()
        parsed = [parse_record(record, boot) for record in read_records(descriptor)]
        os.close(descriptor)
        self.messages = [message for message in parsed if message]

    def result(self, deadline: float) -> dict[str, Any]:
        """Return readable, reason (why the log is unreadable), and the GPU errors."""
        if self.command is not None:
            self.messages = parse_journal(self.command.output(deadline).text)
        return {
            "readable": bool(self.messages) or not self.error,
            "reason": "" if self.messages else self.error,
            "errors": find_errors(self.messages),
        }


class HealthQuery:
    """Queries for a node's health, started on creation.

    Each start of nvidia-smi takes up to a second, so there are few: the throttle reasons are part of the device query,
    and the NVLink states come from a query that the link facts have started.
    """

    def __init__(self, links: Command | None = None) -> None:
        self.deadline = time.monotonic() + SMI_TIMEOUT
        self.smi = find_smi()
        self.kernel_log = KernelLogQuery() if self.smi or count_pci_gpus() else None
        environment = {**os.environ, "LC_ALL": "C"}
        commands = {}
        if self.smi:
            commands = {
                "devices": gpu_health.query(self.smi, "gpu", DEVICE_QUERIES[0]),
                "rows": gpu_health.query(self.smi, "remapped-rows", gpu_health.ROW_FIELDS),
                "links": [self.smi, "nvlink", "--status"],
                "link_errors": [self.smi, "nvlink", "-e"],
            }
        if links is not None:
            commands.pop("links", None)
        self.commands = {name: Command(command, env=environment) for name, command in commands.items()}
        if links is not None:
            self.commands["links"] = links
        self.facts = {
            "identity": read_identity(),
            "ports": host_health.read_ports(),
            "memory": host_health.read_memory(),
        }

    def output(self, name: str) -> str:
        """Return a query's output, or "" if it failed."""
        output = self.commands[name].output(self.deadline) if name in self.commands else None
        return output.text if output is not None and output.code == 0 else ""

    def read_devices(self) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the devices and their throttle reasons, using whichever field name the driver supports."""
        for fields in DEVICE_QUERIES:
            if fields != DEVICE_QUERIES[0] and self.smi:
                command = gpu_health.query(self.smi, "gpu", fields)
                self.commands["devices"] = Command(command, env={**os.environ, "LC_ALL": "C"})
            if INVALID_FIELD not in self.text("devices"):
                text = self.output("devices")
                return gpu_health.parse_devices(text, fields), gpu_health.parse_throttling(text, fields)
        return [], []

    def text(self, name: str) -> str:
        """Return a query's output, even if it failed."""
        return self.commands[name].output(self.deadline).text if name in self.commands else ""

    def result(self) -> dict[str, Any]:
        """Return identity, kernel_log (None without NVIDIA GPUs), gpus, nvlinks, ports and memory."""
        rows = gpu_health.parse_remapped(self.output("rows"))
        devices, throttling = self.read_devices()
        gpus = []
        for number, gpu in enumerate(devices):
            mask = throttling[number] if number < len(throttling) else 0
            gpus.append({**gpu, "rows": rows.get(gpu["uuid"]), "throttling": gpu_health.throttle_reasons(mask)})
        return {
            **self.facts,
            "gpus": gpus,
            "nvlinks": gpu_health.parse_nvlinks(self.output("links"), self.output("link_errors")),
            "kernel_log": self.kernel_log.result(self.deadline) if self.kernel_log else None,
        }
