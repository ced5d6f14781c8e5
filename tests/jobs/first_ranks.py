"""A job that prints the number and location of each rank after one all_reduce. Needs torch."""

from __future__ import annotations

import os
import socket

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    value = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(value)
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "MASTER_ADDR")
    output = " ".join(f"{name}={os.environ[name]}" for name in names)
    print(
        f"I am rank {dist.get_rank()} of {dist.get_world_size()} local {os.environ['LOCAL_RANK']} "
        f"on {socket.gethostname()} sum {value.item()} {output}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
