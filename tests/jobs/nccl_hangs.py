"""An NCCL job whose ranks share one GPU, and whose last rank hangs after some steps: nccl_hangs.py KIND SECONDS.

KIND: loop, uneven (fewer batches), sizes (another size), stopped (SIGSTOP), lazy (the others wait in item()).
SECONDS: torch's timeout for collectives. NCCL refuses two ranks of a machine on one GPU, so each has a host of its own.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

os.environ["NCCL_HOSTID"] = f"host{os.environ['RANK']}"

import torch
import torch.distributed as dist

kind, timeout = sys.argv[-2], float(sys.argv[-1])
torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=timeout))
rank, world_size = dist.get_rank(), dist.get_world_size()
is_last = rank == world_size - 1


def load() -> None:
    while True:
        time.sleep(0.01)


def hang() -> None:
    if kind in ("loop", "lazy"):
        load()
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)


def train(steps: int) -> None:
    for step in range(steps):
        print(f"step {step}", flush=True)
        if step == 3 and is_last:
            hang()
        loss = torch.ones(100_000 if step == 3 and is_last and kind == "sizes" else 200_000, device="cuda")
        dist.all_reduce(loss)
        if kind != "lazy":
            torch.cuda.synchronize()
        loss[0].item()


train(10 if is_last and kind == "uneven" else 13)
dist.barrier()
torch.cuda.synchronize()
