# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables of the Python versions, CUDA builds and GPUs that each torch release supports, and the matching
flash-attention.

docs/software.md shows them with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Minor = tuple[int, int]  # minor version of torch, Python or glibc, or a compute capability

# GPU architectures that a build's kernels are compiled for, as in torch.cuda.get_arch_list().
KEPLER_TO_AMPERE = "sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86"
KEPLER_TO_HOPPER = "sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
MAXWELL_TO_HOPPER = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
VOLTA_TO_BLACKWELL = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
TURING_TO_BLACKWELL = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


@dataclass(frozen=True)
class TorchRelease:
    """A minor torch release."""

    newest: str  # newest patch release
    pythons: tuple[Minor, Minor]  # the oldest and the newest version that have a wheel
    builds: Mapping[int, str]  # CUDA version (124 for 12.4) to the GPU architectures that its kernels support


@dataclass(frozen=True)
class FlashAttentionRelease:
    """A flash-attention release, described by its published wheels."""

    torches: tuple[Minor, ...]
    pythons: tuple[Minor, Minor]
    cudas: Mapping[int, str]  # major version of the CUDA that torch was built with, to its tag in wheel names
    glibc: Minor  # the oldest version that can load them


TORCH = {
    (2, 0): TorchRelease("2.0.1", ((3, 8), (3, 11)), {117: KEPLER_TO_AMPERE, 118: KEPLER_TO_HOPPER}),
    (2, 1): TorchRelease("2.1.2", ((3, 8), (3, 11)), {118: KEPLER_TO_HOPPER, 121: MAXWELL_TO_HOPPER}),
    (2, 2): TorchRelease("2.2.2", ((3, 8), (3, 12)), {118: KEPLER_TO_HOPPER, 121: MAXWELL_TO_HOPPER}),
    (2, 3): TorchRelease("2.3.1", ((3, 8), (3, 12)), {118: KEPLER_TO_HOPPER, 121: MAXWELL_TO_HOPPER}),
    (2, 4): TorchRelease(
        "2.4.1", ((3, 8), (3, 12)), {118: KEPLER_TO_HOPPER, 121: MAXWELL_TO_HOPPER, 124: MAXWELL_TO_HOPPER}
    ),
    (2, 5): TorchRelease(
        "2.5.1", ((3, 9), (3, 13)), {118: KEPLER_TO_HOPPER, 121: MAXWELL_TO_HOPPER, 124: MAXWELL_TO_HOPPER}
    ),
    (2, 6): TorchRelease(
        "2.6.0", ((3, 9), (3, 13)), {118: KEPLER_TO_HOPPER, 124: MAXWELL_TO_HOPPER, 126: MAXWELL_TO_HOPPER}
    ),
    (2, 7): TorchRelease(
        "2.7.1", ((3, 9), (3, 13)), {118: KEPLER_TO_HOPPER, 126: MAXWELL_TO_HOPPER, 128: TURING_TO_BLACKWELL}
    ),
    (2, 8): TorchRelease(
        "2.8.0", ((3, 9), (3, 13)), {126: MAXWELL_TO_HOPPER, 128: VOLTA_TO_BLACKWELL, 129: VOLTA_TO_BLACKWELL}
    ),
    (2, 9): TorchRelease(
        "2.9.1", ((3, 10), (3, 14)), {126: MAXWELL_TO_HOPPER, 128: VOLTA_TO_BLACKWELL, 130: TURING_TO_BLACKWELL}
    ),
    (2, 10): TorchRelease(
        "2.10.0", ((3, 10), (3, 14)), {126: MAXWELL_TO_HOPPER, 128: VOLTA_TO_BLACKWELL, 130: TURING_TO_BLACKWELL}
    ),
    (2, 11): TorchRelease(
        "2.11.0",
        ((3, 10), (3, 14)),
        {126: MAXWELL_TO_HOPPER, 128: TURING_TO_BLACKWELL, 129: TURING_TO_BLACKWELL, 130: TURING_TO_BLACKWELL},
    ),
    (2, 12): TorchRelease(
        "2.12.1", ((3, 10), (3, 14)), {126: MAXWELL_TO_HOPPER, 130: TURING_TO_BLACKWELL, 132: TURING_TO_BLACKWELL}
    ),
    (2, 13): TorchRelease(
        "2.13.0", ((3, 10), (3, 14)), {126: MAXWELL_TO_HOPPER, 130: TURING_TO_BLACKWELL, 132: TURING_TO_BLACKWELL}
    ),
}

FLASH_ATTENTION = {
    "2.5.8": FlashAttentionRelease(((2, 2), (2, 3)), ((3, 8), (3, 11)), {11: "118", 12: "122"}, (2, 31)),
    "2.6.3": FlashAttentionRelease(((2, 2), (2, 3), (2, 4)), ((3, 8), (3, 12)), {11: "118", 12: "123"}, (2, 31)),
    "2.7.4.post1": FlashAttentionRelease(
        ((2, 2), (2, 3), (2, 4), (2, 5), (2, 6)), ((3, 9), (3, 13)), {12: "12"}, (2, 31)
    ),
    "2.8.3": FlashAttentionRelease(((2, 4), (2, 5), (2, 6), (2, 7), (2, 8)), ((3, 9), (3, 13)), {12: "12"}, (2, 32)),
}
FLASH_CAPABILITY = (8, 0)  # the oldest GPUs that FlashAttention 2 has kernels for: Ampere

# Python versions that uv or conda installs if the system Python is unsuitable, in order of preference: all newer
# releases of torch and flash-attention above have a wheel for the first, and torch 2.0 and 2.1 have one for the other.
MANAGED_PYTHONS = ((3, 12), (3, 11))
