"""Train the same small network with DistributedDataParallel, FSDP or a DeepSpeed ZeRO stage, which distribute the same
work differently.

    torchrun --standalone --nproc-per-node 2 train.py --strategy fsdp --steps 20

The data is synthetic, and the same at each step for all strategies and any number of ranks; so is the loss, if the
global batch is. Uses GPUs (nccl) if there are any, otherwise the CPU (gloo). To train your own network, replace
make_model().

With --save-every, checkpoints go to --checkpoint-dir: a file of rank 0 (ddp), or the shards of all ranks (fsdp, zero).
--resume PATH continues from one of them; the stages of ZeRO need the same number of ranks.

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
import torch.distributed.checkpoint as dcp
import torch.distributed.nn  # before the group exists: a later import would keep the group alive
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 3  # number of steps that are not measured: optimizers allocate memory and buckets are created


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=["ddp", "fsdp", "zero1", "zero2", "zero3"], default="ddp")
    parser.add_argument("--steps", type=int, default=20, help=f"more than {WARM_UP} (default: %(default)s)")
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--global-batch-size", type=int, default=64, help="of all ranks (default: %(default)s)")
    batch.add_argument("--batch-size", type=int, help="of each rank, in place of it")
    parser.add_argument("--width", type=int, default=256, help="of the network (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="of the network (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints (default: none are saved)")
    parser.add_argument(
        "--checkpoint-dir",
        default=os.path.join(os.environ.get("MUSTER_RUN_DIRECTORY", "."), "checkpoints"),
        help="directory for step-N (default: checkpoints in $MUSTER_RUN_DIRECTORY or the working directory)",
    )
    parser.add_argument("--resume", help="checkpoint to continue from, such as checkpoints/step-20")
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"--steps {arguments.steps}: more than {WARM_UP} are needed, since that many are not measured")
    return arguments


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.add = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.add(inputs)


def make_model(width: int, layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _layer in range(layers)))


def make_batch(step: int, size: int, width: int, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's part of the inputs for a step, and the targets, which are the reversed vectors."""
    inputs = torch.randn(size, width, generator=torch.Generator().manual_seed(step))[rank::world_size]
    return inputs, inputs.flip(1)


class Strategy:
    """A network and its optimizer, as set up by a strategy."""

    def __init__(self, name: str, model: nn.Sequential, batch_size: int, device: torch.device) -> None:
        self.name, self.device = name, device
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
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)  # with FSDP, over the rank's shards

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Run one step and return this rank's loss."""
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        if self.engine is not None:
            self.engine.backward(loss)
            self.engine.step()
        else:
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def save(self, directory: str, step: int) -> None:
        """Write the checkpoint step-N. All ranks must call this."""
        path = os.path.join(directory, f"step-{step}")
        os.makedirs(directory, exist_ok=True)
        if self.engine is not None:
            self.engine.save_checkpoint(directory, tag=f"step-{step}")
        elif self.name == "fsdp":
            dcp.save(dict(zip(("model", "optimizer"), get_state_dict(self.model, self.optimizer))), checkpoint_id=path)
        elif dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, f"{path}.tmp")
            os.replace(f"{path}.tmp", f"{path}.pt")  # readers never see a partial file

    def load(self, path: str) -> int:
        """Read a checkpoint and return the number of steps that it includes. All ranks must call this."""
        directory, name = os.path.split(os.path.normpath(path))
        if self.engine is not None:
            self.engine.load_checkpoint(directory, tag=name)
        elif self.name == "fsdp":
            model, optimizer = get_state_dict(self.model, self.optimizer)
            dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=path)
            set_state_dict(self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer)
        else:
            saved = torch.load(path, map_location=self.device)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
        return int(name.removesuffix(".pt").removeprefix("step-"))


def peak_memory_mib(device: torch.device) -> float:
    """Return this rank's peak memory."""
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


def report_losses(losses: list[torch.Tensor], last: int) -> float:
    """Print the losses of the steps up to a given last one, averaged over the ranks; return the last step's loss.

    All steps at once: a reduction per step would make ranks wait.
    """
    total = torch.stack(losses)
    dist.all_reduce(total)
    means = [round(loss / dist.get_world_size(), 4) for loss in total.tolist()]
    if dist.get_rank() == 0:
        for step, mean in enumerate(means, last - len(means) + 1):
            print("MUSTER_RESULT " + json.dumps({"step": step, "loss": mean}), flush=True)
    return means[-1]


def train(arguments: argparse.Namespace, device: torch.device) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    batch_size = arguments.batch_size or max(1, arguments.global_batch_size // world_size)
    strategy = Strategy(
        arguments.strategy, make_model(arguments.width, arguments.layers).to(device), batch_size, device
    )
    first = strategy.load(arguments.resume) if arguments.resume else 0
    if first >= arguments.steps:
        raise SystemExit(f"{arguments.resume} already includes {first} steps: increase --steps {arguments.steps}")
    started, losses = 0.0, []
    for step in range(first, arguments.steps):
        if step == first + WARM_UP:
            dist.barrier()
            started = time.perf_counter()
        inputs, targets = make_batch(step, batch_size * world_size, arguments.width, rank, world_size)
        losses.append(strategy.step(inputs.to(device), targets.to(device)))
        if arguments.save_every and (step + 1) % arguments.save_every == 0 and step + 1 < arguments.steps:
            report_losses(losses, step + 1)
            losses.clear()
            strategy.save(arguments.checkpoint_dir, step + 1)
    most = torch.tensor([peak_memory_mib(device)], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)  # also waits for the slowest rank
    seconds = time.perf_counter() - started
    measured = max(0, arguments.steps - first - WARM_UP)
    last_loss = report_losses(losses, arguments.steps)
    if rank == 0:
        result = {
            "loss": last_loss,
            "samples_per_second": round(batch_size * world_size * measured / seconds, 1),
            "batch_size": batch_size,
            "global_batch_size": batch_size * world_size,
            "peak_memory_mib": round(most.item(), 1),
        }
        print("MUSTER_RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
