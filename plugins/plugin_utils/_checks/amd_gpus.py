# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check AMD GPUs, their driver and amd-smi. Not yet run on real hardware."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error

INSTALL_REMEDY = (
    "install AMD's driver and ROCm as described on https://rocm.docs.amd.com/projects/install-on-linux "
    "(amdgpu-dkms and rocm), then reboot the node: muster does not install them"
)


def driver_findings(name: str, gpus: dict[str, Any]) -> list[Finding]:
    """Return the first problem with a node's driver, without separately reporting its consequences."""
    state, message, loaded = gpus["smi"]["state"], gpus["smi"]["output"], gpus["driver"]["loaded"]
    if state == "hangs":
        return [
            error(
                "amd-smi-hangs",
                [name],
                problem="amd-smi did not respond within 10 s",
                requirement="a driver that responds",
                remedy="look for amdgpu in the output of sudo dmesg, stop the processes that use the GPUs (sudo fuser "
                "-v /dev/kfd), and "
                "reboot the node",
            )
        ]
    if state == "no-driver" or (gpus["pci"] and not loaded):
        return [
            error(
                "amd-driver-not-loaded",
                [name],
                problem="the amdgpu driver is not loaded" + (f": {message}" if message else ""),
                requirement="a loaded driver",
                remedy=f"run sudo modprobe amdgpu; if there is no such module, {INSTALL_REMEDY}",
            )
        ]
    if state == "absent" and gpus["pci"]:
        return [
            error(
                "amd-smi-missing",
                [name],
                problem=(
                    f"the node has {gpus['pci']} AMD GPU{'' if gpus['pci'] == 1 else 's'}, but not amd-smi, the tool "
                    "that shows them"
                ),
                requirement="amd-smi in PATH or /opt/rocm/bin",
                remedy=(
                    "install amd-smi-lib from AMD's package source (sudo apt-get install amd-smi-lib), or set "
                    "node_slots and run without GPU samples (-e preflight_skip=amd-smi-missing)"
                ),
            )
        ]
    if state in ("failed", "no-gpu"):
        return [
            error(
                "gpu-broken",
                [name],
                problem=f"amd-smi failed: {message or 'no reason given'}",
                requirement="GPUs that respond",
                remedy=(
                    "run amd-smi on the node, which names missing groups (to add them: sudo usermod -aG render,video "
                    "USER); look for amdgpu in the output of sudo dmesg; reboot the node, and have the GPU replaced "
                    "if the error returns"
                ),
            )
        ]
    return []
