"""A job without torch, with one process per node as started by launcher env, which resumes, saves on a notice, and may
hang.

It ends with 0 once there is a file `end` in its run directory, or after a notice that ends the run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import zipfile
from pathlib import Path


def save(path: Path, rank: str) -> None:
    """Write a file in the format of torch.save. All ranks may share the directory."""
    temporary = path.with_suffix(f".{rank}.tmp")
    with zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr("archive/data.pkl", b"weights" * 1000)
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--hang-at", type=int, default=-1, help="step of the first attempt at which rank 0 hangs")
    options = parser.parse_args()
    rank, attempt = os.environ["NODE_RANK"], os.environ["MUSTER_ATTEMPT"]
    directory, notice = Path(os.environ["MUSTER_RUN_DIRECTORY"]), Path(os.environ["MUSTER_NOTICE_FILE"])
    checkpoint = os.environ.get("MUSTER_CHECKPOINT", "")
    text = f"from {Path(checkpoint).name}, {Path(checkpoint).stat().st_size} bytes" if checkpoint else "anew"
    print(f"attempt {attempt} of rank {rank} starts {text}", flush=True)
    saved = 0
    for step in itertools.count():
        print(f"step {step} of attempt {attempt}, rank {rank}", flush=True)
        while attempt == "0" and step == options.hang_at:
            time.sleep(1)
        if notice.exists():
            content = json.loads(notice.read_text())
            if content["number"] > saved:
                saved = content["number"]
                save(options.checkpoints / f"step-{1000 * saved}.pt", rank)
                print(f"rank {rank} has saved at notice {saved}", flush=True)
                if content["stop"]:
                    break
        if (directory / "end").exists():
            break
        time.sleep(0.1)


if __name__ == "__main__":
    main()
