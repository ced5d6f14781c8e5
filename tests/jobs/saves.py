"""A job without torch that saves checkpoints as frameworks do: as directories, as one file that is overwritten, and as
a best one.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path


def save(path: Path, content: bytes) -> None:
    """Write to a temporary file, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.tmp").write_bytes(content)
    path.with_name(f"{path.name}.tmp").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--until", type=Path, help="a file for which it waits before it ends")
    options = parser.parse_args()
    rank = int(os.environ["NODE_RANK"])
    directory = Path(os.environ["MUSTER_RUN_DIRECTORY"], "checkpoints")
    for step in range(1, options.steps + 1):
        save(directory / f"step-{step}" / f"shard-{rank}.bin", f"step {step} of rank {rank}\n".encode() * 5000)
        save(directory / "last.pt", f"last {step}\n".encode() * 100_000)
        save(directory / "best.pt", f"best {step}\n".encode() * 1000)
        print(f"saved step {step}", flush=True)
        time.sleep(0.2)
    while options.until and not options.until.exists():
        time.sleep(0.1)


if __name__ == "__main__":
    main()
