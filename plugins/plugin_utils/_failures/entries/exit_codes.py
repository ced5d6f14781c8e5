# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes that were ended by a signal."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    LESS_HOST_MEMORY,
    MORE_SHARED_MEMORY,
)

TOPIC = "Signals and exit codes"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="bus-error",
        title="A process was killed by a bus error",
        example="was killed by SIGBUS",
        texts=(
            r"was killed by SIGBUS",
            r"exit code \d{3} \(SIGBUS\)",
            r"Signal 7 \(SIGBUS\) received by PID",
            r"exitcode {1,4}: -7\b",
            r"failed \(exitcode: -7\)",
            r"return code = -7\b",
            r"Fatal Python error: Bus error",
            r"Bus error \((?:core dumped|signal 7)\)",
        ),
        cause=(
            "Almost always, /dev/shm is full: the processes on a node share memory through it, and a container's "
            "default is 64 MB. In rare cases, a memory-mapped file was truncated, or its disk failed."
        ),
        remedy=f"{MORE_SHARED_MEMORY}",
        source="deepspeedai/DeepSpeed#4002",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="illegal-instruction",
        title="A program uses instructions that the CPU does not support",
        example="was killed by SIGILL",
        texts=(
            r"was killed by SIGILL",
            r"exit code \d{3} \(SIGILL\)",
            r"Signal 4 \(SIGILL\) received by PID",
            r"exitcode {1,4}: -4\b",
            r"failed \(exitcode: -4\)",
            r"return code = -4\b",
            r"Illegal instruction\b",
        ),
        cause=(
            "A compiled package was built for a CPU newer than the node's (AVX2, AVX-512), or was built on a node "
            "with a different CPU."
        ),
        remedy=(
            "compare the output of `lscpu` on the nodes; install the package's standard wheel instead of one "
            "that was built on another machine, and remove caches of compiled code that nodes share "
            "(~/.cache/torch_extensions, TRITON_CACHE_DIR)"
        ),
        source="pytorch/pytorch#37577",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="aborted",
        title="A process aborted itself",
        example="was killed by SIGABRT",
        texts=(
            r"was killed by SIGABRT",
            r"process \d{1,7} terminated with signal SIGABRT",
            r"exit code \d{3} \(SIGABRT\)",
            r"Signal 6 \(SIGABRT\) received by PID",
            r"exitcode {1,4}: -6\b",
            r"failed \(exitcode: -6\)",
            r"return code = -6\b",
        ),
        cause=(
            "A C++ library ended the process because of an uncaught error: torch's NCCL watchdog after a "
            "timeout, an assertion, or corrupted memory. Its message appears in the log before the end of the "
            "process."
        ),
        remedy=(
            "read the lines with `terminate called`, `what():` or `Assertion` in the log; for a timeout, run "
            "ansible-playbook logs.yml -e fetch=true to see what the other ranks were doing"
        ),
        source="pytorch/pytorch#118369",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="killed",
        title="A process was killed from outside",
        example="Signal 9 (SIGKILL) received by PID ...",
        texts=(
            r"Signal 9 \(SIGKILL\) received by PID",
            r"failed \(exitcode: -9\)",
            r"exitcode {1,4}: -9\b",
            r"was killed by SIGKILL",
            r"process \d{1,7} terminated with signal SIGKILL",
            r"return code = -9\b",
        ),
        cause=(
            "Something sent SIGKILL to the process, most often the kernel for lack of memory; if so, dmesg on the "
            "node shows it."
        ),
        remedy=(
            "run `sudo dmesg -T | grep -i 'killed process'` on that node to see whether the kernel killed it, and free "
            f"-g while the job is running; if memory is the cause: {LESS_HOST_MEMORY}"
        ),
        source="lzhxmu/CPPO#6",
        general=True,
        weak=True,
    ),
    CatalogueEntry(
        id="native-crash",
        title="A process crashed outside Python",
        example="Signal 11 (SIGSEGV) received by PID ...",
        texts=(
            r"Signal 11 \(SIGSEGV\) received by PID",
            r"was killed by SIGSEGV",
            r"process \d{1,7} terminated with signal SIGSEGV",
            r"exit code \d{3} \(SIGSEGV\)",
            r"exitcode {1,4}: -11\b",
            r"failed \(exitcode: -11\)",
            r"return code = -11\b",
            r"Segmentation fault \(core dumped\)",
            r"malloc\(\): (?:invalid|corrupted|memory corruption|unaligned)",
            r"(?:free|munmap_chunk)\(\): invalid pointer",
            r"double free or corruption \(",
            r"Fatal Python error: Segmentation fault",
        ),
        cause=(
            "Compiled code accessed invalid memory, usually in a package that was built for a different torch, CUDA "
            "or Python version."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"PYTHONFAULTHANDLER": "1"}}\' to log the Python line where '
            "it happens; reinstall the package that contains that line; run ansible-playbook preflight.yml to "
            "compare the versions on all nodes"
        ),
        source="a run on one H200",
        general=True,
        weak=True,
    ),
    CatalogueEntry(
        id="dataloader-crashed",
        title="A DataLoader worker crashed outside Python",
        example="RuntimeError: DataLoader worker (pid 1657) is killed by signal: Segmentation fault.",
        texts=(
            r"DataLoader worker \(pid \d{1,10}\) is killed by signal: (?:Segmentation fault|Aborted)",
            r"Unexpected segmentation fault encountered in worker",
        ),
        cause=(
            "Compiled code that the dataset uses crashed: an image or video decoder, OpenCV's threads after a "
            "fork, or a package that is incompatible with the environment; sometimes memory ran out."
        ),
        remedy=(
            "set DataLoader(num_workers=0) to see where it crashes; then call cv2.setNumThreads(0) in the "
            'dataset, use DataLoader(multiprocessing_context="spawn"), or try a different version of the package'
        ),
        source="STVIR/pysot#140",
        weak=True,
    ),
)
