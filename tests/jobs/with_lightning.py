"""Lightning on several nodes: runs a few steps, and each rank prints its rank. DEVICES and NODES are command-line
arguments.
"""

from __future__ import annotations

import gc
import socket
import sys

import lightning
import torch


class Line(lightning.LightningModule):
    """One weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self) -> None:
        counts = self.all_gather(torch.ones(1))
        assert isinstance(counts, torch.Tensor)  # one tensor as input, one as output
        output = (
            f"I am rank {self.global_rank} of {counts.sum().item():g} local {self.local_rank} on {socket.gethostname()}"
        )
        print(f"{output}\n", end="", flush=True)  # in one write: ranks may share a log


def main() -> None:
    devices, nodes = int(sys.argv[1]), int(sys.argv[2])
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(32, 1)), batch_size=4)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        num_nodes=nodes,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Line(), data)
    del trainer  # the trainer holds the group, and thereby gloo's threads
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
