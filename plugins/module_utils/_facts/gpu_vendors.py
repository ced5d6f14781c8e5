# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPU vendors, and how to read the GPUs of each."""

from __future__ import annotations

import glob
import os

from ansible_collections.muster.training.plugins.module_utils._facts import gpus

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable

NVIDIA, AMD = "nvidia", "amd"


def has_nvidia() -> bool:
    """Return whether the node has NVIDIA GPUs, without starting a process."""
    return os.path.isdir("/sys/module/nvidia") or bool(glob.glob("/dev/nvidia[0-9]*")) or gpus.count_pci_gpus() > 0


def has_amd() -> bool:
    """Return whether the node has AMD GPUs for computing, without starting a process."""
    from ansible_collections.muster.training.plugins.module_utils._facts import amd_gpus

    return amd_gpus.is_present()


def query_amd() -> Any:
    """Start querying AMD GPUs. Imported lazily, so that only nodes with AMD GPUs pay for the import."""
    from ansible_collections.muster.training.plugins.module_utils._facts import amd_gpus

    return amd_gpus.AmdQuery()


# By vendor: how to tell whether a node has its GPUs, and how to query them. The first vendor found is used; a node
# without GPUs is queried as an NVIDIA node.
READERS: dict[str, tuple[Callable[[], bool], Callable[[], Any]]] = {
    NVIDIA: (has_nvidia, gpus.GpuQuery),
    AMD: (has_amd, query_amd),
}


def find_vendor() -> str:
    """Return the vendor of this node's GPUs."""
    return next((vendor for vendor, (is_present, _query) in READERS.items() if is_present()), NVIDIA)


def start_query() -> Any:
    """Start querying the node's GPUs with the reader for their vendor."""
    return READERS[find_vendor()][1]()
