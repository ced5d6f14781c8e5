# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures caused by a /dev/shm that is too small or full."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    MORE_SHARED_MEMORY,
)

TOPIC = "Shared memory (/dev/shm)"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataloader-shared-memory",
        title="/dev/shm is too small for the DataLoader",
        example="DataLoader worker (pid ...) is killed by signal: Bus error",
        texts=(
            r"DataLoader worker \(pid[^\n]{0,40}\) is killed by signal: Bus error",
            r"insufficient shared memory \(shm\)",
        ),
        cause="DataLoader workers pass batches through /dev/shm, which is full.",
        remedy=MORE_SHARED_MEMORY,
        source="open-mmlab/mmsegmentation#1356",
        refines=("disk-full",),
    ),
    CatalogueEntry(
        id="nccl-shared-memory",
        title="/dev/shm is too small for NCCL",
        example="NCCL WARN Error: failed to extend /dev/shm/nccl-... to ... bytes",
        texts=(
            r"failed to extend /dev/shm/",
            r"Error while creating shared memory segment",
            r"Error while attaching to shared memory segment",
            r"NCCL WARN Call to shm_open failed",
            r"Call to posix_fallocate failed",
        ),
        cause=(
            "The ranks of a node communicate through /dev/shm, which is full; a container's default of 64 MB fills "
            "up immediately."
        ),
        remedy=MORE_SHARED_MEMORY,
        source="pytorch/ci-infra#490",
    ),
    CatalogueEntry(
        id="shared-memory-semaphores",
        title="/dev/shm has no room for a lock",
        example="sl = self._semlock = _multiprocessing.SemLock( ... OSError: [Errno 28] No space left on device",
        texts=(
            r"SemLock\b[^\n]{0,80}\n(?:[^\n]{0,40}\^[^\n]{0,80}\n)?[^\n]{0,20}OSError: \[Errno 28\]",
            r"SemLock\b[^\n]{0,60}No space left on device",
            r"unlink_now\)\n[^\n]{0,20}OSError: \[Errno 28\]",
        ),
        cause="A process could not create a lock for its workers: locks are files in /dev/shm, which is full. "
        "It is memory, not a disk; a container's default is 64 MB.",
        remedy=f"{MORE_SHARED_MEMORY}",
        source="python/cpython#93253",
        refines=("disk-full",),
    ),
    CatalogueEntry(
        id="shared-memory-full",
        title="/dev/shm is full",
        example="RuntimeError: unable to write to file </torch_31911_952036340_6686>: No space left on device (28)",
        texts=(
            r"unable to (?:write to|resize) file </torch_",
            r"unable to allocate shared memory\(shm\) for file </torch_",
            r"/dev/shm/[^\n]{1,120}No space left on device",
            r"No space left on device[^\n]{0,20}/dev/shm/",
        ),
        cause="The processes of a node pass tensors to each other through /dev/shm, which is full. It is "
        "memory, not a disk; a container's default is 64 MB.",
        remedy=f"{MORE_SHARED_MEMORY}",
        source="idiap/ESLAM#20",
    ),
    CatalogueEntry(
        id="shared-memory-mappings",
        title="A process has too many shared tensors",
        example="RuntimeError: unable to mmap 29764 bytes from file </torch_10182_3020184674_63991>: Cannot "
        "allocate memory (12)",
        texts=(r"unable to mmap \d{1,20} bytes from file </torch_",),
        cause=(
            "Each tensor that processes share is a memory mapping, and the kernel allows a process only a "
            "limited number of them (vm.max_map_count); or the machine ran out of memory."
        ),
        remedy=(
            "run sudo sysctl -w vm.max_map_count=1048576 on that node; in the script, share one large tensor instead "
            "of many small ones, or use fewer DataLoader workers (num_workers)"
        ),
        source="pytorch/pytorch#87861",
    ),
)
