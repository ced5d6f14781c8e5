"""Train a small handwritten-digit classifier with DistributedDataParallel: a complete, restartable training script.

It reads only the variables that PyTorch launchers set (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), so it
runs under torchrun, DeepSpeed, accelerate and muster.training:

    torchrun --standalone --nproc-per-node 4 examples/ddp/train_ddp.py --epochs 20

The data set is the 1797 images of 8x8 pixels included in scikit-learn: nothing is downloaded. Uses GPUs (nccl) if there
are any, otherwise the CPU (gloo).

Some lines of rank 0 are machine-readable. Any script may print such lines, with any keys; muster.training shows the
last value of each key in the summary of a run, and keys that occur more than once as curves in its report:

    MUSTER_RESULT {"step": 230, "loss": 0.0413, "accuracy": 0.95}
    MUSTER_RESULT {"accuracy": 0.97, "samples_per_second": 12345.6, "checkpoint": "/abs/path.pt"}
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group exists: if imported later, it would keep the group alive (see main)
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

HELD_OUT = 360  # a fifth of the images


def parse_arguments() -> argparse.Namespace:
    run_directory = os.environ.get("MUSTER_RUN_DIRECTORY", ".")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="passes over the images (default: %(default)s)")
    parser.add_argument(
        "--global-batch-size",
        type=int,
        default=64,
        help=(
            "images per step across all ranks, so that training is the same for any number of ranks (default: "
            "%(default)s)"
        ),
    )
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="learning rate (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help=("seed for the split, the order and the weights (default: %(default)s)")
    )
    parser.add_argument("--checkpoint-every", type=int, default=5, help="interval in epochs (default: %(default)s)")
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        default=Path(run_directory, "checkpoints"),
        help="directory for train_ddp.pt (default: checkpoints in $MUSTER_RUN_DIRECTORY or the working directory)",
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint, if it exists")
    return parser.parse_args()


def load_pictures(seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return training images and digits, then held-out images and digits; the split is the same on every rank."""
    digits = load_digits()
    pictures = torch.tensor(digits.data, dtype=torch.float32, device=device) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64, device=device)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(device)
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return pictures[train], labels[train], pictures[test], labels[test]


def shard(samples: int, epoch: int, seed: int, rank: int, world_size: int) -> torch.Tensor:
    """Return this rank's indices for this epoch: one shuffled order, distributed round-robin.

    The order is padded from its beginning until all ranks have the same number, as in DistributedSampler: if a rank had
    fewer steps than the others, they would wait forever for its gradient.
    """
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))
    missing = -samples % world_size
    return torch.cat([order, order[:missing]])[rank::world_size]


def held_out_accuracy(
    model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, rank: int, world_size: int
) -> float:
    """Return the accuracy on held-out images; each rank evaluates its own part."""
    model.eval()
    with torch.no_grad():
        right = (model(pictures[rank::world_size]).argmax(dim=1) == labels[rank::world_size]).sum()
    model.train()
    dist.all_reduce(right)
    return right.item() / len(labels)


def report(metrics: dict[str, object]) -> None:
    """Print metrics as a machine-readable line in rank 0's log."""
    print("MUSTER_RESULT " + json.dumps(metrics), flush=True)


def save_checkpoint(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint atomically, so that readers never see a partial file, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    torch.save(state, unfinished)
    unfinished.replace(path)


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
    # Ends gloo's threads, unless something else holds the group. A thread that needs the interpreter while it is
    # shutting down aborts the process: "terminate called without an active exception" (torch 2.13, Python before 3.14).
    dist.destroy_process_group()


def train(arguments: argparse.Namespace, device: torch.device) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    train_pictures, train_labels, test_pictures, test_labels = load_pictures(arguments.seed, device)

    torch.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate)
    checkpoint = arguments.checkpoint_dir.absolute() / "train_ddp.pt"
    first_epoch = step = 0
    if arguments.resume:
        # only rank 0 needs the file
        saved = [torch.load(checkpoint, map_location="cpu") if rank == 0 and checkpoint.exists() else None]
        dist.broadcast_object_list(saved, src=0, device=device)
        if saved[0] is not None:
            model.load_state_dict(saved[0]["model"])
            optimizer.load_state_dict(saved[0]["optimizer"])
            first_epoch, step = saved[0]["epoch"], saved[0]["step"]
    ddp_model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    batch_size = max(1, arguments.global_batch_size // world_size)
    accuracy = held_out_accuracy(model, test_pictures, test_labels, rank, world_size)
    if rank == 0:
        print(
            f"world size {world_size}, {device.type}, {len(train_labels)} training and {len(test_labels)} held-out "
            f"pictures, starting after epoch {first_epoch} with accuracy {accuracy:.4f}",
            flush=True,
        )
    samples, seconds = 0, 0.0
    for epoch in range(first_epoch, arguments.epochs):
        started = time.perf_counter()
        indices = shard(len(train_labels), epoch, arguments.seed, rank, world_size).to(device)
        loss_sum = torch.zeros((), device=device)
        for batch in indices.split(batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp_model(train_pictures[batch]), train_labels[batch])
            loss.backward()  # DistributedDataParallel averages the gradients of all ranks here
            optimizer.step()
            loss_sum += loss.detach() * len(batch)
            step += 1
        dist.all_reduce(loss_sum)  # also waits for the slowest rank, so this measures the whole job
        mean_loss = loss_sum.item() / (len(indices) * world_size)
        epoch_samples, epoch_seconds = len(indices) * world_size, time.perf_counter() - started
        samples, seconds = samples + epoch_samples, seconds + epoch_seconds
        accuracy = held_out_accuracy(model, test_pictures, test_labels, rank, world_size)
        if rank == 0:
            print(
                f"epoch {epoch + 1}/{arguments.epochs} step {step} loss {mean_loss:.4f} accuracy {accuracy:.4f} "
                f"samples/s {epoch_samples / epoch_seconds:.0f}",
                flush=True,
            )
            report({"step": step, "loss": round(mean_loss, 5), "accuracy": round(accuracy, 4)})
            if (epoch + 1) % arguments.checkpoint_every == 0 or epoch + 1 == arguments.epochs:
                progress = {"epoch": epoch + 1, "step": step}
                save_checkpoint(
                    checkpoint, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **progress}
                )
    if rank == 0:
        result = {
            "accuracy": round(accuracy, 4),
            "samples_per_second": round(samples / seconds, 1) if seconds else 0.0,
            "checkpoint": str(checkpoint),
        }
        report(result)


if __name__ == "__main__":
    main()
