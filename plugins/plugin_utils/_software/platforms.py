# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The platforms that torch is built for: a processor architecture and a GPU vendor.

docs/arm_and_amd.md shows the tables with their sources. A CUDA build is represented by the digits of its version, 124
for 12.4; a ROCm build by ROCM plus these digits, 1064 for 6.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ansible_collections.muster.training.plugins.plugin_utils._software.tables import TORCH, Minor, TorchRelease

CPU = 0  # the build for nodes without GPUs
ROCM = 1000
X86, ARM = "x86_64", "aarch64"
NVIDIA, AMD = "nvidia", "amd"

# Architectures that kernels are compiled for: torch.cuda.get_arch_list() for CUDA, LLVM's targets for ROCm.
GRACE_HOPPER = "sm_90"
ARM_126 = "sm_80 sm_90"
GRACE_BLACKWELL = "sm_90 sm_100 sm_120"
ARM_130 = "sm_80 sm_90 sm_100 sm_110 sm_120"
MI100_TO_MI300 = "gfx900 gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101"
WITH_RX9000 = f"{MI100_TO_MI300} gfx1102 gfx1200 gfx1201"
WITH_MI350 = f"{WITH_RX9000} gfx950 gfx1150 gfx1151"

ARM_BUILDS: Mapping[Minor, Mapping[int, str]] = {
    (2, 6): {126: GRACE_HOPPER},
    (2, 7): {128: GRACE_BLACKWELL},
    (2, 8): {129: GRACE_BLACKWELL},
    (2, 9): {126: ARM_126, 128: GRACE_BLACKWELL, 130: ARM_130},
    (2, 10): {126: ARM_126, 128: GRACE_BLACKWELL, 130: ARM_130},
    (2, 11): {130: ARM_130},
    (2, 13): {130: ARM_130, 132: ARM_130},
}
ROCM_BUILDS: Mapping[Minor, Mapping[int, str]] = {
    (2, 6): {1061: MI100_TO_MI300},
    (2, 7): {1063: MI100_TO_MI300},
    (2, 8): {1064: WITH_RX9000},
    (2, 9): {1064: WITH_RX9000},
    (2, 10): {1070: WITH_MI350, 1071: WITH_MI350},
    (2, 11): {1072: WITH_MI350},
    (2, 12): {1072: WITH_MI350},
    (2, 13): {1071: WITH_MI350, 1072: WITH_MI350},
}


def releases_with(builds: Mapping[Minor, Mapping[int, str]]) -> dict[Minor, TorchRelease]:
    """Return the torch releases that have builds for a platform, together with these builds."""
    return {minor: replace(TORCH[minor], builds=kernels) for minor, kernels in builds.items()}


@dataclass(frozen=True)
class Platform:
    """A platform, and the torch releases that are built for its GPUs."""

    title: str  # name in messages
    gpus: str  # the software that the vendor's GPUs need: CUDA or ROCm
    releases: Mapping[Minor, TorchRelease]
    driver: str  # how to get the software, for a message
    flash_wheels: bool = False  # whether flash-attention publishes wheels for these GPUs


NVIDIA_DRIVER = "Install a driver (ansible-playbook site.yml --tags nvidia_driver)"
AMD_DRIVER = "Install AMD's driver (docs/arm_and_amd.md)"
# By processor architecture and GPU vendor.
PLATFORMS = {
    (X86, NVIDIA): Platform("x86_64 with NVIDIA GPUs", "CUDA", TORCH, NVIDIA_DRIVER, flash_wheels=True),
    (ARM, NVIDIA): Platform("aarch64 with NVIDIA GPUs", "CUDA", releases_with(ARM_BUILDS), NVIDIA_DRIVER),
    (X86, AMD): Platform("x86_64 with AMD GPUs", "ROCm", releases_with(ROCM_BUILDS), AMD_DRIVER),
}
DEFAULT = PLATFORMS[X86, NVIDIA]
# Nodes without GPUs get the CPU build, which each release provides for both architectures.
CPU_PLATFORMS = {X86: DEFAULT, ARM: replace(PLATFORMS[ARM, NVIDIA], releases=TORCH)}


class PlatformError(Exception):
    """The nodes have no platform in common, or torch is not built for it. The message includes a remedy."""


def find_platform(nodes: Iterable[tuple[str, str, str]]) -> Platform:
    """Return the common platform of nodes, each given as a name, an architecture ("": unknown) and a vendor ("": no
    GPUs).
    """
    nodes = list(nodes)
    machines = {machine or X86: name for name, machine, _vendor in nodes}
    vendors = {vendor: name for name, _machine, vendor in nodes if vendor}
    for kind, values in (("processors", machines), ("GPUs of different vendors", vendors)):
        if len(values) > 1:
            listed = ", ".join(f"{value} on {name}" for value, name in sorted(values.items()))
            raise PlatformError(
                f"the nodes have {'different ' if kind == 'processors' else ''}{kind} ({listed}), and one environment "
                "is installed on all of them. Put the nodes of each kind into a separate group, and run "
                "ansible-playbook site.yml -e site_group=GROUP for each"
            )
    machine, vendor = next(iter(machines), X86), next(iter(vendors), "")
    platform = PLATFORMS.get((machine, vendor)) if vendor else CPU_PLATFORMS.get(machine)
    if platform is None:
        gpus = f" with {vendor.upper()} GPUs" if vendor else ""
        raise PlatformError(
            f"no builds of torch are known for {machine}{gpus}. Set pytorch_enabled to false, install torch yourself, "
            "and set launch_python to the interpreter that has it"
        )
    return platform


def is_rocm(build: int) -> bool:
    """Return whether a build is for ROCm."""
    return build >= ROCM


def format_build(build: int) -> str:
    """Format a build's version: 12.4 for 124, rocm6.4 for 1064."""
    digits = build - ROCM if is_rocm(build) else build
    return f"{'rocm' if is_rocm(build) else ''}{digits // 10}.{digits % 10}"


def build_name(build: int) -> str:
    """Return the name of a build's package index, such as cu126, rocm6.4 or cpu."""
    return "cpu" if build == CPU else format_build(build) if is_rocm(build) else f"cu{build}"


def describe_build(build: int) -> str:
    """Return a build's name for a message."""
    version = format_build(build).removeprefix("rocm")
    return "the CPU" if build == CPU else f"{'ROCm' if is_rocm(build) else 'CUDA'} {version}"
