"""Record the files that torchrun writes when ranks fail: python -m tests.record_torchrun [CASE ...]

Writes tests/unit/fixtures/torchrun/CASE with launcher.log and the logs and error files of the ranks, laid out as in a
run directory. Needs torch. Paths and the name of this machine are replaced; run it again for a new torch release.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent / "unit" / "fixtures" / "torchrun"
PROGRAM = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

def main():
    if sys.argv[1] in ("once", "always"):
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print("attempt", attempt, flush=True)
        if sys.argv[1] == "once" and attempt == "1":
            return
        if os.environ["RANK"] == sys.argv[2]:
            raise ValueError(f"boom: attempt {attempt}")
        time.sleep(600)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} is here", flush=True)
    how, who = sys.argv[1], int(sys.argv[2])
    if rank == who:
        if how == "raise":
            raise ValueError("boom: all of it")
        if how == "exit":
            sys.exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "abort":
            os.abort()
    if how == "wait":
        time.sleep(600)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    (record(main) if "record" in sys.argv else main)()
"""
# Name: arguments of the program, number of nodes with two ranks each, torchrun options
CASES: dict[str, tuple[list[str], int, list[str]]] = {
    "raise": (["raise", "1"], 1, []),
    "raise_with_record": (["raise", "1", "record"], 1, []),
    "raise_on_second_node": (["raise", "3"], 2, []),
    "exit_code": (["exit", "0"], 1, []),
    "kill": (["kill", "1"], 1, []),
    "abort": (["abort", "0"], 1, []),
    "restarted_and_well": (["once", "0"], 1, ["--max-restarts=1"]),
    "restarted_and_failed": (["always", "0"], 1, ["--max-restarts=1"]),
    "terminated": (["wait", "0"], 1, []),
    "no_such_script": ([], 1, []),
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def run_case(work: Path, arguments: list[str], nodes: int, options: list[str]) -> list[int]:
    """Run the case in work/nodeN; return the launchers' exit codes."""
    program = work / "train.py"
    if arguments:
        program.write_text(PROGRAM)
    port = free_port()
    launchers = []
    for rank in range(nodes):
        directory = work / f"node{rank}"
        directory.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={rank}"]
        command += ["--rdzv-backend=static", "--master-addr=127.0.0.1", f"--master-port={port}", "--nproc-per-node=2"]
        command += ["--rdzv-id=first", f"--log-dir={directory}/ranks", "--redirects=3", *options]
        with open(directory / "launcher.log", "wb") as log:
            launchers.append(
                subprocess.Popen(
                    [*command, str(program), *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=work
                )
            )
    if arguments[:1] == ["wait"]:
        for rank in (0, 1):
            while not any("is here" in log.read_text() for log in work.glob(f"node0/ranks/*/*/{rank}/stdout.log")):
                time.sleep(0.1)
        launchers[0].send_signal(signal.SIGTERM)
    try:
        return [launcher.wait(timeout=120) for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.terminate()  # also ends its ranks; has no effect if it has already ended


def keep(work: Path, source: Path, target: Path) -> None:
    """Copy a node's files, replacing this machine's paths and names."""
    replaced = {
        sysconfig.get_paths()["purelib"]: "/opt/venv/lib/python3/site-packages",
        sysconfig.get_paths()["stdlib"]: "/usr/lib/python3",
        sys.executable: "/opt/venv/bin/python",
        str(work): "/job",
        socket.gethostname(): "node0",
        socket.getfqdn(): "node0",
    }
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(source.rglob("*")):
        if path.is_file():
            text = path.read_text()
            for text_here, replacement in sorted(replaced.items(), key=lambda pair: -len(pair[0])):
                text = text.replace(text_here, replacement)
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in sys.argv[1:] or CASES:
        arguments, nodes, options = CASES[name]
        with tempfile.TemporaryDirectory() as directory:
            work = Path(directory)
            codes = run_case(work, arguments, nodes, options)
            keep(work, work / f"node{nodes - 1}", FIXTURES / name)
            print(f"{name}: launchers ended with {codes}")


if __name__ == "__main__":
    main()
