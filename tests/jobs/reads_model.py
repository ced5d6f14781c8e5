"""A job in an image: each rank uses the image's own packages, finds the model offline, and communicates with the
others.
"""

from __future__ import annotations

import importlib
import os
import socket
from pathlib import Path

import huggingface_hub
import torch.distributed as dist


def main() -> None:
    probe = importlib.import_module("probe")  # a package that only the image has
    model = Path(huggingface_hub.snapshot_download("org/tiny"))
    sizes = {path.name: path.stat().st_size for path in sorted(model.iterdir())}
    rank = os.environ["RANK"] = os.environ.get("RANK") or os.environ["NODE_RANK"]  # the launcher env does not set RANK
    dist.init_process_group("gloo")
    names: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(names, socket.gethostname())
    print(f"rank {rank} of {names}: {probe.answer}, {sizes}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
