"""A job without torch that runs many steps, to test how a launcher ends: each rank prints its rank, and misbehaves if
requested.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--raise-on", type=int, default=-1, help="rank that raises an exception at step 5")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--detach", action="store_true", help="leave a child behind that has detached itself")
    parser.add_argument("--show", nargs="*", default=[], help="names of variables whose values are printed")
    parser.add_argument("--local_rank", type=int, default=-1, help="as DeepSpeed's launcher gives it")
    options = parser.parse_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.detach:
        subprocess.Popen(["setsid", "-f", "sleep", "4322"])
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if options.local_rank not in (-1, local):
        raise SystemExit(f"--local_rank={options.local_rank}, but LOCAL_RANK={local}")
    print(f"I am rank {rank} of {world} local {local} on {socket.gethostname()}\n", end="", flush=True)
    for name in options.show:
        print(f"{name}={os.environ.get(name)!r}\n", end="", flush=True)
    for step in range(options.steps):
        print(f"step {step} world {world}\n", end="", flush=True)
        if rank == options.raise_on and step == 5:
            raise ValueError("boom at step 5")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
