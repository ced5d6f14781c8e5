# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures caused by a lack of host memory."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    LESS_HOST_MEMORY,
)

TOPIC = "Host memory"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="threads-exhausted",
        title="The job cannot start more threads or processes",
        example="RuntimeError: can't start new thread",
        texts=(
            r"RuntimeError: can't start new thread",
            r"OpenBLAS blas_thread_init: pthread_create failed",
            r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable",
            r"libgomp: Thread creation failed",
        ),
        cause=(
            "The limit on processes and threads (ulimit -u, or a container's pids limit) has been reached, because "
            "each rank and each DataLoader worker starts as many threads as there are cores."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}}\' '
            "and use fewer DataLoader workers; in a container, set --pids-limit=-1 in launch_container_options. "
            "If the error is `Operation not permitted` instead, the node's Docker is too old for the image"
        ),
        source="MIC-DKFZ/nnUNet#1343",
    ),
    CatalogueEntry(
        id="host-allocator-out-of-memory",
        title="torch ran out of host memory",
        example="DefaultCPUAllocator: can't allocate memory: you tried to allocate ... bytes",
        texts=(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",),
        cause="The machine's own memory (not GPU memory) has no room for a tensor.",
        remedy=LESS_HOST_MEMORY,
        source="mxfold/mxfold2#20",
        recoverable=True,
    ),
    CatalogueEntry(
        id="host-out-of-memory",
        title="The machine's memory is full",
        example="terminate called after throwing an instance of 'std::bad_alloc'",
        texts=(
            r"std::bad_alloc\b",
            r"MemoryError(?<![\w.]MemoryError)\b",
            r"_ArrayMemoryError: Unable to allocate",
            r"ArrowMemoryError: (?:re|m)alloc of size",
            r"\[Errno 12\] Cannot allocate memory",
        ),
        cause="The machine's own memory, or the job's memory limit, is exhausted.",
        remedy=LESS_HOST_MEMORY,
        source="tensorflow/tensor2tensor#192",
        recoverable=True,
    ),
    CatalogueEntry(
        id="container-out-of-memory",
        title="The kernel killed a process at the memory limit of its container or service",
        example="Memory cgroup out of memory: Killed process ...",
        texts=(
            r"Memory cgroup out of memory: Kill",
            r"oom-kill:constraint=CONSTRAINT_MEMCG",
            r"killed by the cgroup out-of-memory handler",
            r"Detected \d{1,6} oom[-_]kill events?",
            r"slurmstepd: error: [^\n]{0,120}OOM Killed",
            r"srun: error: [^\n]{0,80}: Out Of Memory",
            r"the kernel killed processes at the memory limit",
        ),
        cause="The job used more memory than its container, service or scheduler allows.",
        remedy=(
            "raise the limit (set launch_container_options: [--memory=...], Slurm's --mem, or the limit of the "
            f"machine's own service), or use less memory: {LESS_HOST_MEMORY}"
        ),
        source="docker/for-linux#1001",
        kind="confirmation",
    ),
    CatalogueEntry(
        id="kernel-out-of-memory",
        title="The kernel killed a process for lack of memory",
        example="Out of memory: Killed process ... (python)",
        texts=(
            r"Out of memory: Kill(?:ed)? process",
            r"invoked oom-killer",
            r"oom-kill:constraint=",
            r"the kernel killed processes for lack of memory",
        ),
        cause="The machine ran out of memory, and the kernel killed the process that used the most.",
        remedy=LESS_HOST_MEMORY,
        source="pcyin/tranX#41",
        kind="confirmation",
    ),
    CatalogueEntry(
        id="dataloader-killed",
        title="A DataLoader worker was killed",
        example="DataLoader worker (pid ...) is killed by signal: Killed",
        texts=(r"DataLoader worker \(pid[^\n]{0,40}\) is killed by signal: (?:Killed|Terminated)",),
        cause=(
            "In almost all cases, the machine ran out of memory and the kernel killed the worker; if so, dmesg "
            "on the node shows it."
        ),
        remedy=LESS_HOST_MEMORY,
        source="hezhangsprinter/DCPDN#12",
    ),
    CatalogueEntry(
        id="dataloader-exited",
        title="A DataLoader worker exited",
        example="DataLoader worker (pid(s) ...) exited unexpectedly",
        texts=(r"DataLoader worker \(pid\(s\) [\d, ]{1,200}\) exited unexpectedly",),
        cause=(
            "A worker exited earlier; the reason is above this line or, if the worker was killed, in dmesg on the node."
        ),
        remedy="read the rank's earlier output; set num_workers=0 to see the dataset's own error",
        source="THU-DA-6D-Pose-Group/GDR-Net#16",
        kind="consequence",
    ),
    CatalogueEntry(
        id="worker-process-killed",
        title="A data preparation worker process died",
        example="RuntimeError: One of the subprocesses has abruptly died during map operation.",
        texts=(
            r"One of the subprocesses has abruptly died during map operation",
            r"BrokenProcessPool: A process in the process pool was",
            r"TerminatedWorkerError: A worker process managed by the executor",
        ),
        cause=(
            "A process that prepares data was killed, usually because the node ran out of memory: each of these "
            "processes holds a part of the data."
        ),
        remedy=(
            "use fewer processes (dataset.map(..., num_proc=4), dataset_num_proc, preprocessing_num_workers) and "
            "smaller batches (batch_size, writer_batch_size); if memory is not the reason, set num_proc=1 to see "
            "the error itself"
        ),
        source="datajuicer/data-juicer#430",
        weak=True,
    ),
    CatalogueEntry(
        id="pin-memory-thread",
        title="The DataLoader's pinned-memory thread died",
        example="RuntimeError: Pin memory thread exited unexpectedly",
        texts=(r"Pin memory thread exited unexpectedly",),
        cause=(
            "The thread that copies batches to pinned memory ended because of an error that is shown further up in "
            "the log. Often there was no memory left to pin, a sample had an unusual type, or a worker died; in old "
            "versions, using persistent_workers together with pin_memory is another cause."
        ),
        remedy=(
            "read the thread's traceback further up in the log; set pin_memory=False to avoid the error; use fewer "
            "workers and a smaller prefetch_factor to reduce memory use"
        ),
        source="pytorch/pytorch#47445",
        kind="consequence",
        weak=True,
    ),
)
