"""Train a small handwritten-digit classifier with Lightning, on the nodes and devices that torchrun started.

    torchrun --standalone --nproc-per-node 2 train.py --epochs 10

Lightning reads their number from the environment, so the script is the same for one node and for sixteen. The images
are included in scikit-learn: nothing is downloaded.

Checkpoints go to $MUSTER_RUN_DIRECTORY/checkpoints; --resume PATH continues from one. The last line of rank 0,
MUSTER_RESULT, is shown in the summary of a run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time

import lightning
import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group exists: a later import would keep the group alive
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, TensorDataset, random_split

HELD_OUT = 360  # a fifth of the images


class Digits(lightning.LightningDataModule):
    """1797 images of 8x8 pixels, which Lightning distributes among the ranks."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        digits = load_digits()
        pictures = torch.tensor(digits.data, dtype=torch.float32) / 16.0
        dataset = TensorDataset(pictures, torch.tensor(digits.target, dtype=torch.int64))
        sizes = [len(dataset) - HELD_OUT, HELD_OUT]
        self.train_set, self.held_out = random_split(dataset, sizes, generator=torch.Generator().manual_seed(0))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.held_out, batch_size=self.batch_size)


class Classifier(lightning.LightningModule):
    """A classifier with two hidden layers."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.learning_rate = learning_rate
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    def on_train_epoch_start(self) -> None:
        self.started, self.samples = time.perf_counter(), 0

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.samples += len(batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        right = (self.layers(batch[0]).argmax(dim=1) == batch[1]).float().mean()
        self.log("accuracy", right, on_epoch=True, sync_dist=True, batch_size=len(batch[1]))

    def on_train_epoch_end(self) -> None:
        rate = self.samples * self.trainer.world_size / (time.perf_counter() - self.started)  # for all ranks together
        self.log("samples_per_second", rate, rank_zero_only=True)
        metrics = self.trainer.callback_metrics
        if self.trainer.is_global_zero:
            print(
                f"epoch {self.current_epoch + 1}/{self.trainer.max_epochs} loss {metrics['loss']:.4f} "
                f"accuracy {metrics['accuracy']:.4f}",
                flush=True,
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the pictures (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per rank (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="of AdamW (default: %(default)s)")
    parser.add_argument("--resume", default=None, help="checkpoint to continue from, which each node must have")
    return parser.parse_args()


@record  # writes a failed rank's traceback to the file that the launcher reads
def main() -> None:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # several ranks share the cores
    train(arguments)
    gc.collect()  # objects that hold the group, and with it gloo's threads
    if dist.is_initialized():
        dist.destroy_process_group()


def train(arguments: argparse.Namespace) -> None:
    lightning.seed_everything(0)
    run_directory = os.environ.get("MUSTER_RUN_DIRECTORY", ".")
    directory = os.path.join(run_directory, "checkpoints")
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),  # torchrun's name for the number of nodes
        strategy="ddp",
        max_epochs=arguments.epochs,
        callbacks=[ModelCheckpoint(directory, save_last=True)],
        # metrics.csv, which the report plots as curves; written immediately, in case this process is killed. Each
        # attempt of a run has its own directory, since Lightning removes an existing file.
        logger=CSVLogger(
            run_directory,
            name="metrics",
            version=int(os.environ.get("MUSTER_ATTEMPT", "0")),
            flush_logs_every_n_steps=1,
        ),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(arguments.learning_rate), Digits(arguments.batch_size), ckpt_path=arguments.resume)
    if trainer.is_global_zero:
        result = {
            "accuracy": round(trainer.callback_metrics["accuracy"].item(), 4),
            "samples_per_second": round(trainer.callback_metrics["samples_per_second"].item(), 1),
            "checkpoint": os.path.abspath(os.path.join(directory, "last.ckpt")),
        }
        print("MUSTER_RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
