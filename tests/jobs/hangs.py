"""A gloo job whose last rank hangs in one of several ways after some steps: hangs.py KIND SECONDS.

KIND: loop, sleep (rank 0 before a barrier), uneven (fewer batches), stopped (SIGSTOP), sizes (another size), exit.
SECONDS: torch's timeout for collectives.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

kind, timeout = sys.argv[-2], float(sys.argv[-1])
os.environ.setdefault("RANK", os.environ.get("NODE_RANK", "0"))
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout))
rank, world_size = dist.get_rank(), dist.get_world_size()
is_last = rank == world_size - 1


def load() -> None:
    while True:
        time.sleep(0.01)


def validate() -> None:
    time.sleep(3600)


def train(steps: int) -> None:
    for step in range(steps):
        print(f"step {step}", flush=True)
        if step == 3 and is_last and kind == "loop":
            load()
        if step == 3 and is_last and kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if step == 3 and is_last and kind == "exit":
            sys.stdout.flush()
            os._exit(0)
        dist.all_reduce(torch.ones(100 if step == 3 and is_last and kind == "sizes" else 2))


train(10 if is_last and kind == "uneven" else 13)
if rank == 0 and kind == "sleep":
    validate()
dist.barrier()
