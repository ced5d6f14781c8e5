# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's data about GPU vendors: names and commands for messages, and the matching torch builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GpuVendor:
    """A vendor of GPUs."""

    title: str
    tool: str  # the program that shows the vendor's GPUs
    driver: str  # name of the driver in messages
    reset: str  # the command that resets a GPU
    throttling: str  # the command that shows whether a GPU is being throttled
    pace: str  # the command that additionally shows clock speeds and temperatures
    kernel_messages: str  # text to look for in the kernel log
    device_files: str  # arguments for fuser, which finds the processes that are using a GPU
    torch_build: str  # the fact that shows whether a torch build supports these GPUs: cuda or hip
    platform: str  # the platform that torch must have been built for


DEFAULT = "nvidia"
VENDORS = {
    "nvidia": GpuVendor(
        title="NVIDIA",
        tool="nvidia-smi",
        driver="the NVIDIA driver",
        reset="sudo nvidia-smi -r",
        throttling="nvidia-smi -q -d PERFORMANCE",
        pace="nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE",
        kernel_messages="NVRM: Xid",
        device_files="/dev/nvidia*",
        torch_build="cuda",
        platform="CUDA",
    ),
    "amd": GpuVendor(
        title="AMD",
        tool="amd-smi",
        driver="the amdgpu driver",
        reset="sudo amd-smi reset --gpureset",
        throttling="amd-smi metric --throttle",
        pace="amd-smi metric --throttle --clock --temperature",
        kernel_messages="amdgpu",
        device_files="/dev/kfd",
        torch_build="hip",
        platform="ROCm",
    ),
}


def vendor_name(gpus: Mapping[str, Any] | None) -> str:
    """Return the key in VENDORS for the vendor of a node's GPUs. gpus: the node's `gpus` facts."""
    name = (gpus or {}).get("vendor")
    return name if isinstance(name, str) and name in VENDORS else DEFAULT


def vendor_of(gpus: Mapping[str, Any] | None) -> GpuVendor:
    """Return the vendor of a node's GPUs."""
    return VENDORS[vendor_name(gpus)]


def vendor_of_model(model: str) -> GpuVendor:
    """Return a GPU's vendor, derived from its model in a run's record, which omits the name NVIDIA."""
    return next((vendor for vendor in VENDORS.values() if model.startswith(f"{vendor.title} ")), VENDORS[DEFAULT])


def plan_fields(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the node plan's field that names the vendor, or no field for the default vendor."""
    name = vendor_name(facts.get("gpus"))
    return {} if name == DEFAULT else {"gpu_vendor": name}
