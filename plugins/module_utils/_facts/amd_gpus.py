# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query a node's AMD GPUs: the output of amd-smi, the driver, and the processes that use a GPU.

Not yet run on real hardware: the parsers are tested with recorded output.
"""

from __future__ import annotations

import contextlib
import glob
import grp
import os
import re
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command, CommandOutput
from ansible_collections.muster.training.plugins.module_utils._facts.gpus import (
    PCI_DEVICES,
    SMI_TIMEOUT,
    VIRTUAL_MACHINES,
    gpu_processes,
)
from ansible_collections.muster.training.plugins.module_utils._files.text import read_value
from ansible_collections.muster.training.plugins.module_utils._health import amd_smi

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

VENDOR = "0x1002"  # PCI vendor
# Classes of accelerators, with or without a display output. Integrated graphics and desktop cards have class 0x0300;
# they count only if amd-smi lists them.
ACCELERATOR_CLASSES = ("0x0380", "0x1200")
MODULE = "/sys/module/amdgpu"
ROCM_VERSION = "/opt/rocm/.info/version"
# patterns for glob and for a path; processes that compute on a GPU open these files
DEVICE_FILES = ("/dev/kfd", r"/dev/kfd\Z")


def find_amd_smi() -> str | None:
    """Return the path of amd-smi, or None if it is not installed."""
    return shutil.which("amd-smi") or shutil.which("amd-smi", path=os.pathsep.join(amd_smi.DIRECTORIES))


def count_accelerators() -> int:
    """Return the number of AMD accelerators on the PCI bus, with or without a driver.

    Excludes those passed through to a virtual machine.
    """
    return sum(
        read_value(f"{device}/vendor") == VENDOR
        and read_value(f"{device}/class").startswith(ACCELERATOR_CLASSES)
        and os.path.basename(os.path.realpath(f"{device}/driver")) not in VIRTUAL_MACHINES
        for device in glob.glob(f"{PCI_DEVICES}/*")
    )


def device_groups() -> dict[str, int]:
    """Return the groups whose members may use the device files on this node, with their GIDs."""
    groups = {}
    for name in ("render", "video"):
        with contextlib.suppress(KeyError):
            groups[name] = grp.getgrnam(name).gr_gid
    return groups


def is_present() -> bool:
    """Return whether the node has AMD GPUs for computing, without starting a process."""
    return bool(count_accelerators() or (os.path.isdir(MODULE) and find_amd_smi()))


def diagnose(output: CommandOutput) -> tuple[str, str]:
    """Return the state (ok, hangs, no-driver, ...) and output of amd-smi, as gpus.diagnose() does for nvidia-smi."""
    text = " ".join(output.text.split())[:300]
    if output.hangs:
        return "hangs", ""
    if amd_smi.parse_gpus(output.text):
        return "ok", ""
    if re.search(r"driver not (?:initialized|loaded)|amdgpu not found in modules|AMDSMI_STATUS_DRIVER", output.text):
        return "no-driver", text
    if output.code == 0 and re.search(r"^(?:\[\s*\]|\{\s*\"gpu_data\":\s*\[\s*\]\s*\})\s*$", output.text, re.MULTILINE):
        return "no-gpu", text
    return "failed", text


class AmdQuery:
    """A query of the node's AMD GPUs, started on creation; see gpus.GpuQuery."""

    smi = None  # nvidia-smi; decides whether links and kernels are queried

    def __init__(self) -> None:
        self.path = find_amd_smi()
        self.deadline = time.monotonic() + SMI_TIMEOUT
        self.commands: dict[tuple[str, ...], Command] = {}
        if self.path:
            environment = {**os.environ, "LC_ALL": "C"}
            queries = (amd_smi.STATIC, amd_smi.METRIC, amd_smi.ECC, amd_smi.LIST, amd_smi.PROCESS)
            self.commands = {query: Command([self.path, *query], env=environment) for query in queries}

    def output(self, query: tuple[str, ...]) -> CommandOutput:
        """Return a query's output."""
        command = self.commands.get(query)
        return command.output(self.deadline) if command is not None else CommandOutput(None, "")

    def result(self) -> dict[str, Any]:
        """Return the same facts as gpus.GpuQuery, plus rocm (the installed version, or "") and groups."""
        devices: list[dict[str, Any]] = []
        apps: list[dict[str, Any]] = []
        state, message = "absent", ""
        if self.path:
            static = self.output(amd_smi.STATIC)
            state, message = diagnose(static)
            identities = amd_smi.parse_identities(self.output(amd_smi.LIST).text)
            metric, ecc = self.output(amd_smi.METRIC).text, self.output(amd_smi.ECC).text
            devices = amd_smi.parse_devices(static.text, metric, ecc, identities)
            uuids = {device["index"]: device["uuid"] for device in devices}
            apps = amd_smi.parse_processes(self.output(amd_smi.PROCESS).text, uuids)
        loaded = read_value(f"{MODULE}/version") or next((device["driver"] for device in devices), "")
        if not loaded and os.path.isdir(MODULE):
            loaded = f"of kernel {os.uname().release}"
        return {
            "vendor": "amd",
            "smi": {"state": state, "output": message, "path": self.path or ""},
            "devices": devices,
            "count": len(devices),
            "pci": len(devices) or count_accelerators(),
            "driver": {"loaded": loaded or None, "library": None, "on_disk": None},
            "nouveau": False,
            "processes": gpu_processes(apps, *DEVICE_FILES),
            "rocm": read_value(ROCM_VERSION)[:60],
            "groups": device_groups(),
        }
