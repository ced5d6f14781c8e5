# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detect whether RDMA adapters can access the memory of NVIDIA GPUs directly (GPUDirect RDMA)."""

from __future__ import annotations

import os
import re

from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

MODULES = "/sys/module"
DRIVER_VERSION = "/proc/driver/nvidia/version"
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")  # NVIDIA's module since driver 465, and Mellanox's for older drivers
DMA_BUF_SINCE = (5, 12)  # Linux, for RDMA adapters


def parse_release(release: str) -> tuple[int, int]:
    """Return a kernel release's major and minor version, or (0, 0) if the text is not a kernel release."""
    match = re.match(r"([0-9]{1,3})\.([0-9]{1,4})", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def has_dma_buf(driver: str, release: str) -> bool:
    """Return whether the driver and kernel can share GPU memory as dma-buf; only NVIDIA's open kernel modules can.

    driver: the content of DRIVER_VERSION; release: that of the kernel.
    """
    return "Open Kernel Module" in driver and parse_release(release) >= DMA_BUF_SINCE


def read_gpudirect(modules: str = MODULES, driver: str = DRIVER_VERSION, release: str = "") -> dict[str, bool]:
    """Return whether a peer-memory module is loaded (peermem), and whether dma-buf is supported (dma_buf)."""
    return {
        "peermem": any(os.path.isdir(os.path.join(modules, name)) for name in PEER_MODULES),
        "dma_buf": has_dma_buf(read_value(driver), release or os.uname().release),
    }
