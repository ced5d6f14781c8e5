"""A gloo job whose last rank hangs in one of several ways after some steps: hangs.py KIND SECONDS.

KIND: loop, sleep (rank 0 before a barrier), uneven (fewer batches), lock (its data loader's worker waits for a lock
held when it was forked), stopped (SIGSTOP), sizes (another size), exit (with 0).
SECONDS: torch's timeout for collectives.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

kind, timeout = sys.argv[-2], float(sys.argv[-1])
os.environ.setdefault("RANK", os.environ.get("NODE_RANK", "0"))
dist.init_process_group("gloo")
dist.barrier()  # all have started, however long that took
group = dist.new_group(timeout=datetime.timedelta(seconds=timeout))
rank, world_size = dist.get_rank(), dist.get_world_size()
is_last = rank == world_size - 1
lock = threading.Lock()


class Numbers(Dataset[int]):
    """A data set that acquires a process-wide lock, as a logger or a cache does."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with lock:
            return index


def load() -> None:
    while True:
        time.sleep(0.01)


def load_with_worker() -> None:
    lock.acquire()  # like a lock that one of the parent's threads holds at the time of the fork
    batches = iter(DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork"))
    lock.release()
    next(batches)


def validate() -> None:
    time.sleep(3600)


def hang() -> None:
    if kind == "loop":
        load()
    if kind == "lock":
        load_with_worker()
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "exit":
        sys.stdout.flush()
        os._exit(0)


def train(steps: int) -> None:
    for step in range(steps):
        print(f"step {step}", flush=True)
        if step == 3 and is_last:
            hang()
        dist.all_reduce(torch.ones(100 if step == 3 and is_last and kind == "sizes" else 2), group=group)


train(10 if is_last and kind == "uneven" else 13)
if rank == 0 and kind == "sleep":
    validate()
dist.barrier(group)
