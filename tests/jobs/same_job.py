"""The same training with any launcher and framework: same_job.py [plain|deepspeed|accelerate|lightning] OPTIONS.

Each rank prints its rank and host, rank 0 the loss of each step. With the same world size the losses do not depend on
how the ranks were started, except for the last digit of float32 arithmetic that sums in another order. Needs torch, and
the framework.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: it would keep the group alive, and with it gloo's threads

FEATURES, GLOBAL_BATCH = 8, 16


def batches(steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the global batch for each step, which is the same on all ranks."""
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(FEATURES, 1, generator=generator)
    for _step in range(steps):
        inputs = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)
        yield inputs, inputs @ weights


def make_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def print_rank(rank: int, world: int) -> None:
    print(
        f"I am rank {rank} of {world} local {os.environ['LOCAL_RANK']} on {socket.gethostname()}\n", end="", flush=True
    )


def deepspeed_config(world: int, steps_together: int) -> dict[str, Any]:
    """Return a configuration for ZeRO stage 2 on the available devices."""
    return {
        "train_batch_size": GLOBAL_BATCH,
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // world,
        "gradient_accumulation_steps": steps_together,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 0.0,  # DeepSpeed's default clips gradients at 1.0
    }


def train(kind: str, options: argparse.Namespace) -> None:
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    accelerator: Any = None
    engine: Any = None
    if kind == "deepspeed":
        import deepspeed

        # DeepSpeed would otherwise compile its own, for which nodes need a compiler
        deepspeed.ops.__compatible_ops__.clear()
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        engine, optimizer, _data, _schedule = deepspeed.initialize(
            model=model, optimizer=optimizer, config=deepspeed_config(dist.get_world_size(), 1)
        )
    elif kind == "accelerate":
        import accelerate

        accelerator = accelerate.Accelerator(cpu=not torch.cuda.is_available())
        model, optimizer = accelerator.prepare(model, optimizer)
    else:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    rank, world = dist.get_rank(), dist.get_world_size()
    print_rank(rank, world)
    for step, (inputs, expected) in enumerate(batches(options.steps)):
        shard = slice(rank * GLOBAL_BATCH // world, (rank + 1) * GLOBAL_BATCH // world)
        result = (engine or model)(inputs[shard])
        loss = torch.nn.functional.mse_loss(result, expected[shard])
        if engine is not None:
            engine.backward(loss)
            engine.step()
        else:
            if accelerator is not None:
                accelerator.backward(loss)
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.5f} world {world}\n", end="", flush=True)
        if rank == options.raise_on and step == 3:
            raise ValueError("boom at step 3")
        time.sleep(options.pause)


def train_with_lightning(options: argparse.Namespace) -> None:
    """Use Lightning's own loop, which is given the number of nodes and devices."""
    import lightning

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()
            self.step = 0

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            world, rank = self.trainer.world_size, self.global_rank
            shard = slice(rank * GLOBAL_BATCH // world, (rank + 1) * GLOBAL_BATCH // world)
            loss = torch.nn.functional.mse_loss(self.model(batch[0][0][shard]), batch[1][0][shard])
            mean = self.all_gather(loss.detach())
            assert isinstance(mean, torch.Tensor)
            if rank == 0:
                print(f"step {self.step} loss {mean.mean().item():.5f} world {world}\n", end="", flush=True)
            if rank == options.raise_on and self.step == 3:
                raise ValueError("boom at step 3")
            self.step += 1
            time.sleep(options.pause)
            return loss

        def on_train_start(self) -> None:
            print_rank(self.global_rank, self.trainer.world_size)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.02)

    data = list(batches(options.steps))
    dataset = torch.utils.data.TensorDataset(
        torch.stack([features for features, _label in data]), torch.stack([label for _features, label in data])
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE") or options.devices),
        num_nodes=options.nodes,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(Line(), torch.utils.data.DataLoader(dataset, batch_size=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["plain", "deepspeed", "accelerate", "lightning"])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    parser.add_argument("--raise-on", type=int, default=-1, help="rank that raises an exception at step 3")
    parser.add_argument("--nodes", type=int, default=1, help="of Lightning")
    parser.add_argument("--devices", type=int, default=1, help="of Lightning, where nothing in the environment tells")
    parser.add_argument("--local_rank", type=int, help="as DeepSpeed's launcher gives it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.kind == "lightning":
        train_with_lightning(options)
    else:
        train(options.kind, options)
    gc.collect()  # engines and accelerators are reference cycles that hold the group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
