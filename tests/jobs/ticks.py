"""A job with one process per node, as started by launcher env. It raises an exception on SIGUSR1. It has no
dependencies.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pwd
import signal
import socket
import subprocess
import time
from pathlib import Path


def interrupt(_number: int, _frame: object) -> None:
    raise ValueError("boom as told")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", default="", help="name of a file in the run directory with which it ends")
    parser.add_argument("--width", type=int, default=0, help="letters of each line")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--detach", action="store_true", help="leave children behind that have detached themselves")
    options = parser.parse_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.detach:
        subprocess.Popen(["sleep", "4321"])  # stands in for a data loader's worker
        # a daemon with its own session, which is handed over to whichever process reaps it
        subprocess.Popen(["setsid", "-f", "sleep", "4322"])
    signal.signal(signal.SIGUSR1, interrupt)
    rank, world = os.environ["NODE_RANK"], os.environ["WORLD_SIZE"]
    user, home = pwd.getpwuid(os.geteuid()).pw_name, os.environ["HOME"]
    print(f"I am rank {rank} of {world} on {socket.gethostname()}, {user} at home in {home}\n", end="", flush=True)
    directory = Path(os.environ["MUSTER_RUN_DIRECTORY"])
    for step in itertools.count():
        print(f"step {step} of rank {rank}".ljust(options.width, ".") + "\n", end="", flush=True)
        if options.until and (directory / options.until).exists():
            break
        time.sleep(0.1)


if __name__ == "__main__":
    main()
