"""Train one small network with DistributedDataParallel, FSDP or a stage of DeepSpeed's ZeRO: the same work,
distributed differently.

    torchrun --standalone --nproc-per-node 2 train.py --strategy fsdp --steps 20

The data is synthetic, and the same at each step for all strategies and any number of ranks; so is the loss, if the
global batch is. Uses GPUs (nccl) if there are any, otherwise the CPU (gloo). To train your own network, replace
make_model().

The last line of rank 0, MUSTER_RESULT, reports the throughput of the whole job without its first steps, the batch size,
and the peak memory of any rank: on a GPU the memory reserved by PyTorch, otherwise that of the process. The lines
before it report the loss, which the report plots as a curve.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group exists: a later import would keep the group alive
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 3  # steps that are not measured: optimizers allocate memory, and buckets are created


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=["ddp", "fsdp", "zero1", "zero2", "zero3"], default="ddp")
    parser.add_argument("--steps", type=int, default=20, help=f"more than {WARM_UP} (default: %(default)s)")
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--global-batch-size", type=int, default=64, help="of all ranks (default: %(default)s)")
    batch.add_argument("--batch-size", type=int, help="of each rank, in place of it")
    parser.add_argument("--width", type=int, default=256, help="of the network (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="of the network (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"--steps {arguments.steps}: more than {WARM_UP} are needed, since so many are not measured")
    return arguments


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.add = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given + self.add(given)


def make_model(width: int, layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _layer in range(layers)))


def make_batch(step: int, size: int, width: int, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's part of a step's inputs, and the targets: each vector reversed."""
    given = torch.randn(size, width, generator=torch.Generator().manual_seed(step))[rank::world_size]
    return given, given.flip(1)


class Strategy:
    """A network and its optimizer, as set up by a strategy."""

    def __init__(self, name: str, model: nn.Sequential, batch_size: int, device: torch.device) -> None:
        self.engine = None
        if name.startswith("zero"):
            import deepspeed  # takes seconds, and only ZeRO needs it

            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            config = {
                "train_micro_batch_size_per_gpu": batch_size,
                "zero_optimization": {"stage": int(name[-1])},
                "zero_allow_untested_optimizer": True,
            }
            self.engine, *_rest = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
            self.model = self.engine
            return
        if name == "fsdp":
            mesh = init_device_mesh(device.type, (dist.get_world_size(),))
            for part in (*model, model):
                fully_shard(part, mesh=mesh)
            self.model = model
        else:
            self.model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)  # with FSDP, over its shards

    def step(self, given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Run one step and return this rank's loss."""
        loss = nn.functional.mse_loss(self.model(given), wanted)
        if self.engine is not None:
            self.engine.backward(loss)
            self.engine.step()
        else:
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()


def peak_memory_mib(device: torch.device) -> float:
    """Return the peak memory of this rank."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


@record  # writes a failed rank's traceback to the file that the launcher reads
def main() -> None:
    arguments = parse_arguments()
    use_cuda = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # several ranks share the cores
    dist.init_process_group("nccl" if use_cuda else "gloo", init_method="env://")
    train(arguments, device)
    dist.destroy_process_group()
    if arguments.strategy == "fsdp" and not use_cuda:
        # DTensor's cache holds the argument of fully_shard and thus keeps gloo's threads alive: a thread that needs the
        # interpreter during its shutdown would abort the process (torch 2.13, Python before 3.14).
        sys.stdout.flush()
        os._exit(0)


def train(arguments: argparse.Namespace, device: torch.device) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    batch_size = arguments.batch_size or max(1, arguments.global_batch_size // world_size)
    strategy = Strategy(
        arguments.strategy, make_model(arguments.width, arguments.layers).to(device), batch_size, device
    )
    started, losses = 0.0, []
    for step in range(arguments.steps):
        if step == WARM_UP:
            dist.barrier()
            started = time.perf_counter()
        given, wanted = make_batch(step, batch_size * world_size, arguments.width, rank, world_size)
        losses.append(strategy.step(given.to(device), wanted.to(device)))
    most = torch.tensor([peak_memory_mib(device)], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)  # also waits for the slowest rank
    seconds = time.perf_counter() - started
    loss = torch.stack(losses)
    dist.all_reduce(loss)  # all steps at once, after the measurement: a reduction per step would make ranks wait
    if rank == 0:
        mean_losses = [round(total / world_size, 4) for total in loss.tolist()]
        for step, mean_loss in enumerate(mean_losses, 1):
            print("MUSTER_RESULT " + json.dumps({"step": step, "loss": mean_loss}), flush=True)
        result = {
            "loss": mean_losses[-1],
            "samples_per_second": round(batch_size * world_size * (arguments.steps - WARM_UP) / seconds, 1),
            "batch_size": batch_size,
            "global_batch_size": batch_size * world_size,
            "peak_memory_mib": round(most.item(), 1),
        }
        print("MUSTER_RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
