"""A job that calls all_reduce in every step, and misbehaves as requested. Needs torch and a launcher that sets RANK."""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--raise-on", type=int, default=-1, help="rank that raises an exception at step 5")
    parser.add_argument("--show-environment", nargs="+", default=[], help="variables whose lengths are printed")
    parser.add_argument("--local_rank", help="added by DeepSpeed")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for name in options.show_environment:
        print(f"length of {name} {len(os.environ[name])}", flush=True)
    for step in range(options.steps):
        value = torch.ones(4)
        dist.all_reduce(value)
        if rank == 0:
            print(f"step {step} sum {value[0].item():g} world {dist.get_world_size()}", flush=True)
        if rank == options.raise_on and step == 5:
            raise ValueError("boom at step 5")
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
