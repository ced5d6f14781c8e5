# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure GPUs (or CPU cores) and the network between nodes, as an ordinary job under torchrun that needs torch.

work.json beside the script, or the file in the first argument, configures the measurements, and the seconds per phase.
After each phase, rank 0 writes the results to measured/benchmark.json in the run directory, so that a stopped run still
has results. They are not judged here. Each timed result is also verified, and wrong ones are reported with their rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings

with contextlib.suppress(ImportError):  # without torch, this module can only be imported
    import torch
    import torch.distributed as dist

from ansible_collections.muster.training.plugins.module_utils._benchmark_job.collectives import measure_collectives
from ansible_collections.muster.training.plugins.module_utils._benchmark_job.matrices import (
    measure_copies,
    measure_matmul,
)
from ansible_collections.muster.training.plugins.module_utils._benchmark_job.pairs import measure_pairs
from ansible_collections.muster.training.plugins.module_utils._benchmark_job.ranks import (
    JsonDict,
    Ranks,
    describe_hardware,
)
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import print_line


def write(path: str, document: JsonDict) -> None:
    """Write a JSON document atomically."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(temporary, path)


def main(arguments: list[str]) -> None:
    """Run all phases."""
    path = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "work.json")
    with open(path, encoding="utf-8") as stream:
        work = json.load(stream)
    # newer torch versions rename some collectives, and older ones lack the new names
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    ranks = Ranks()
    document: JsonDict = {
        "version": 1,
        "backend": ranks.backend,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if ranks.backend == "nccl" else "",
        "ranks": ranks.gather(describe_hardware(ranks)),
        "matmul": [],
        "copies": [],
        "collectives": [],
        "pairs": [],
        "left_out": [],
        "seconds": {},
        "complete": False,
    }
    directory = os.path.join(os.environ.get("MUSTER_RUN_DIRECTORY", "."), "measured")
    os.makedirs(directory, exist_ok=True)
    unused_seconds = 0.0  # unused time goes to the next phase: pairs come last, and need the most if a node is slow
    for phase, phase_seconds in work["seconds"].items():
        started, seconds = time.monotonic(), phase_seconds + unused_seconds
        if ranks.rank == 0:
            print_line(f"[benchmark] {phase}: at most {seconds:.0f} s")
        left_out: list[str] = []
        if phase == "matmul":
            rows = measure_matmul(ranks, work, seconds)
        elif phase == "copies":
            rows = measure_copies(ranks, seconds)
        elif phase == "pairs":
            rows, left_out = measure_pairs(ranks, work, seconds)
        else:
            rows, left_out = measure_collectives(ranks, work, seconds, phase)
        document["collectives" if phase in ("node", "all") else phase] += rows
        document["left_out"] += left_out
        document["seconds"][phase] = time.monotonic() - started
        unused_seconds = max(0.0, seconds - document["seconds"][phase])
        if ranks.rank == 0:
            write(os.path.join(directory, "benchmark.json"), document)
    document["complete"] = True
    if ranks.rank == 0:
        write(os.path.join(directory, "benchmark.json"), document)
    ranks.barrier()
    dist.destroy_process_group()
