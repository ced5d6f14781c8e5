# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The links between a node's GPUs: the NVSwitch fabric and its manager, NVLink, and PCI Express."""

from __future__ import annotations

import glob
import os
import re
import shutil
import struct
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command
from ansible_collections.muster.training.plugins.module_utils._facts.gpudirect import read_gpudirect
from ansible_collections.muster.training.plugins.module_utils._facts.gpus import (
    NVIDIA,
    PCI_DEVICES,
    SMI_TIMEOUT,
    find_smi,
    start_smi_query,
)
from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

NVSWITCH_CLASS = "0x0680"  # a bridge; GPUs are 0x03
FABRIC_FIELDS = ("fabric.state", "fabric.status")  # fields of drivers since 535
FABRIC_MANAGER = "nv-fabricmanager"
SERVICE = "nvidia-fabricmanager"
EXTENDED_CAPABILITIES = 0x100
ACS = 0x000D  # PCI Express Base Specification, 7.7.8
REDIRECTION = 0x0C  # ACS control: P2P request redirect and completion redirect


def count_switches(root: str = PCI_DEVICES) -> int:
    """Return how many NVSwitches are on the PCI bus."""
    return sum(
        read_value(f"{device}/vendor") == NVIDIA and read_value(f"{device}/class").startswith(NVSWITCH_CLASS)
        for device in glob.glob(f"{root}/*")
    )


def parse_fabric(text: str) -> list[dict[str, str]]:
    """Parse the state and status of each GPU's fabric registration; return [] if the driver does not support the
    query.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[:1] != [", ".join(FABRIC_FIELDS)]:
        return []
    return [dict(zip(("state", "status"), line.split(", "))) for line in lines[1:] if line.count(", ") == 1]


def parse_fabric_sections(text: str) -> list[dict[str, str]]:
    """Parse the "Fabric" sections of `nvidia-smi -q`, one per GPU; older drivers report them only there."""
    pattern = r"^\s+Fabric\n\s+State\s*: (.+)\n\s+Status\s*: (.+)$"
    return [{"state": match[1].strip(), "status": match[2].strip()} for match in re.finditer(pattern, text, re.M)]


def parse_links(text: str) -> int | None:
    """Return how many NVLinks are active in the output of `nvidia-smi nvlink --status`, or None if unknown."""
    if not re.search(r"^GPU [0-9]+: |NVLink", text, re.MULTILINE):
        return None
    return len(re.findall(r"^\s*Link [0-9]+: [0-9.]+ GB/s", text, re.MULTILINE))


def has_redirection(config: bytes) -> bool | None:
    """Return whether a PCI bridge redirects traffic between its devices (ACS), or None if this cannot be read.

    config: its configuration space, of which only root can read more than 64 bytes.
    """
    if len(config) <= EXTENDED_CAPABILITIES + 4:
        return None
    offset = EXTENDED_CAPABILITIES
    for _capability in range(64):
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == ACS and offset + 8 <= len(config):
            (control,) = struct.unpack_from("<H", config, offset + 6)
            return bool(control & REDIRECTION)
        offset = header >> 20
        if not EXTENDED_CAPABILITIES < offset <= len(config) - 4:
            return False
    return False


def read_redirections(root: str = PCI_DEVICES) -> list[str] | None:
    """Return the PCI bridges above NVIDIA GPUs that redirect traffic between devices, or None if they cannot be
    read.
    """
    bridges = set()
    for device in glob.glob(f"{root}/*"):
        if read_value(f"{device}/vendor") == NVIDIA and read_value(f"{device}/class").startswith("0x03"):
            parent = os.path.dirname(os.path.realpath(device))
            while os.path.exists(f"{parent}/config"):
                bridges.add(parent)
                parent = os.path.dirname(parent)
    redirecting, is_unknown = [], False
    for bridge in sorted(bridges):
        try:
            with open(f"{bridge}/config", "rb") as stream:
                redirects = has_redirection(stream.read(4096))
        except OSError:
            redirects = None
        is_unknown = is_unknown or redirects is None
        if redirects:
            redirecting.append(os.path.basename(bridge))
    return None if is_unknown and not redirecting else redirecting


def read_iommu(root: str = "/sys/kernel/iommu_groups") -> str:
    """Return how the IOMMU translates addresses: "" if it is off, or the kernel's term, such as identity or DMA."""
    types = {read_value(path) for path in glob.glob(f"{root}/*/type")}
    return next((kind for kind in sorted(types) if kind.startswith("DMA")), "identity" if types else "")


class LinkQuery:
    """Queries for links between GPUs, started on creation if the machine has several GPUs or NVSwitches."""

    def __init__(self) -> None:
        smi = find_smi()
        self.smi = smi or ""
        self.deadline = time.monotonic() + SMI_TIMEOUT
        self.switches = count_switches()
        self.redirections = read_redirections() if smi else None
        self.fabric = start_smi_query(smi, "gpu", FABRIC_FIELDS) if smi else None
        self.links = Command([smi, "nvlink", "--status"], env={**os.environ, "LC_ALL": "C"}) if smi else None
        self.service = self.version = None
        if self.switches:
            manager = shutil.which(FABRIC_MANAGER) or shutil.which(FABRIC_MANAGER, path="/usr/bin:/usr/local/bin")
            self.version = Command([manager, "--version"]) if manager else None
            if shutil.which("systemctl"):
                self.service = Command(["systemctl", "is-active", SERVICE])

    def result(self) -> dict[str, Any]:
        """Return switches, fabric ([{"state", "status"}]), manager (version, service), nvlinks, acs, iommu, gpudirect.

        Unknown values are None; those of manager are "" if it is not installed.
        """
        fabric: list[dict[str, str]] = []
        links = None
        if self.fabric and self.links:
            fabric = parse_fabric(self.fabric.output(self.deadline).text)
            if not fabric and self.switches:
                sections = Command([self.smi, "-q"], env={**os.environ, "LC_ALL": "C"}).output(self.deadline)
                fabric = parse_fabric_sections(sections.text)
            output = self.links.output(self.deadline)
            links = parse_links(output.text) if output.code == 0 else None
        version = re.search(r"[0-9]+\.[0-9.]+[0-9]", self.version.output(self.deadline).text) if self.version else None
        service = self.service.output(self.deadline).text.split() if self.service else []
        return {
            "switches": self.switches,
            "fabric": fabric,
            "manager": {"version": version.group() if version else "", "service": service[-1] if service else ""},
            "nvlinks": links,
            "acs": self.redirections,
            "iommu": read_iommu(),
            "gpudirect": read_gpudirect(),
        }
