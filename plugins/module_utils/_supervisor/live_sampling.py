# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU, memory and disk samples during a run: each node sends its own, and the node leading the run keeps them all."""

from __future__ import annotations

import json
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    file_size,
    open_regular,
    write_atomically,
)
from ansible_collections.muster.training.plugins.module_utils._health.host_health import read_memory
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import FILE as GPU_FILE
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import last_sample
from ansible_collections.muster.training.plugins.module_utils._run.live_samples import (
    FILE,
    GPU,
    MAX_FILE_BYTES,
    MAX_GPUS,
    thin,
    validate_sample,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import open_private, read_tail
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import GPU_SILENCE_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.idle import JobCpu

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

    Notice = Tuple[str, str]  # kind (as on the lifeline) and text of a message

SAMPLE_KIND = "sample"
GPU_TAIL_BYTES = 16384  # bytes read from the end of gpus.csv; a sample of 64 GPUs takes less than 8 KiB


def disk_space(path: str) -> tuple[int | None, int | None]:
    """Return a disk's free and total space in bytes, or None if it cannot be read."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None, None
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize


def describe_gpu(gpu: Data) -> Data:
    """Return a GPU's fields in a sample; unlike in gpus.csv, the index is an integer."""
    return {**{name: gpu.get(name) for name in GPU}, "index": int(gpu["index"] or 0)}


def take_sample(directory: str, job_cores: float | None = None) -> Data:
    """Return a sample of the node that this run directory belongs to. job_cores: CPU cores that the job is using."""
    timestamp, gpus = last_sample(read_tail(os.path.join(directory, GPU_FILE), GPU_TAIL_BYTES))
    is_current = time.time() - timestamp <= GPU_SILENCE_TIMEOUT
    memory = read_memory()
    total, available = memory.get("total_bytes"), memory.get("available_bytes")
    disk_free, disk_total = disk_space(directory)
    return {
        "gpus": [describe_gpu(gpu) for gpu in gpus[:MAX_GPUS]] if is_current else [],
        "job_cores": job_cores,
        "memory_used": None if total is None or available is None else total - available,
        "memory_total": total,
        "disk_free": disk_free,
        "disk_total": disk_total,
    }


class NodeSampler:
    """Takes the samples of this node while its job runs."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.cpu = JobCpu(journal.directory)
        self.interval = plan["timeouts"]["sample"]
        self.due = 0.0

    def step(self, now: float, running: bool) -> list[Notice]:
        """Return a sample if it is due, as a notice to the node that leads the run."""
        if not running or now < self.due:
            return []
        self.due = now + self.interval
        sample = take_sample(self.journal.directory, self.cpu.cores(now, self.plan))
        return [(SAMPLE_KIND, json.dumps(sample))]


class SampleLog:
    """All nodes' samples, on the node that is leading the run. Older samples are thinned to keep the file small."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.path = journal.path(FILE)
        self.interval = plan["timeouts"]["sample"]
        self.number = 0
        self.taken: dict[str, float] = {}  # monotonic time of each node's last sample

    def take(self, node: str, text: str) -> Data | None:
        """Append a node's sample, and return it, unless it is invalid or follows the previous one too soon."""
        now = time.monotonic()
        sample = validate_sample(text)
        if sample is None or now - self.taken.get(node, -self.interval) < self.interval / 2:
            return None
        self.taken[node] = now
        self.number += 1
        line = json.dumps({"node": node, "number": self.number, "time": time.time(), **sample})
        with self.journal.tolerate_full_disk():
            with open(self.path, "a", encoding="utf-8", opener=open_private) as stream:
                stream.write(line + "\n")
            if file_size(self.path) > MAX_FILE_BYTES:
                self.thin()
        return sample

    def thin(self) -> None:
        """Remove every second sample of each node."""
        with open(self.path, "rb", opener=open_regular) as stream:
            lines = stream.read(2 * MAX_FILE_BYTES).splitlines(keepends=True)
        write_atomically(self.path, b"".join(thin(lines)).decode("utf-8", "replace"))
