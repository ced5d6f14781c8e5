# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long nodes take to read data from S3: mounted with s3fs with and without a cache, and staged to the local
disk.

By hand: python -m tests.bench.bench_data --rounds 1
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

from tests.lab import Lab, LabError
from tests.lab.hosts import down
from tests.support.s3_server import S3Server

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = str(CHECKOUT / ".venv" / "bin" / "ansible-playbook")
LAB = "bench-data"
NODES = (1, 4)
LATENCY = 0.02
"""Seconds that the server waits before it responds: about as long as Amazon S3 takes to send the first byte within a
region.
"""
PLAIN, CACHED, CACHE, STAGED = "/mnt/plain", "/mnt/cached", "/var/cache/bench", "/srv/staged"
EXPLANATION = """\
Seconds until the last node has read all data, with {threads} readers per node, all nodes at once; medians of {rounds}
rounds. small: {small} files of {small_kb} kB. large: one file of {large_mb} MB. GETs: GET requests for data, by all
nodes together. The S3 server is a Python program on this machine, which all nodes share; it waits {latency:.0f} ms
before each reply.
s3fs 1.90 is mounted by the role s3fs. Page caches are dropped before each read.
stage: the command `stage_data.yml`, with boto3 installed; staged: reading the staged data from the local disk."""
READ = """
import concurrent.futures, os, sys, time
paths = [os.path.join(at, name) for at, _names, names in os.walk(sys.argv[1]) for name in names if not "/.muster" in at]
def drop(path):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
for top in sys.argv[3:]:
    for at, _names, names in os.walk(top):
        for name in names:
            drop(os.path.join(at, name))
def read(path):
    with open(path, "rb", buffering=0) as stream:
        return sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
start = time.monotonic()
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as pool:
    size = sum(pool.map(read, paths))
print(len(paths), size, time.monotonic() - start)
"""
PLAY = """
- hosts: training
  gather_facts: false
  any_errors_fatal: true
  roles:
    - role: muster.training.s3fs
"""


class Bench:
    """The nodes, the server and its contents."""

    def __init__(self, lab: Lab, s3: S3Server, threads: int) -> None:
        self.lab = lab
        self.s3 = s3
        self.threads = threads
        self.expected: dict[str, tuple[int, int]] = {}

    def fill(self, small: int, small_kb: int, large_mb: int) -> None:
        """Create the objects on the server."""
        client = self.s3.client()
        for number in range(small):
            client.put_object(Bucket="data", Key=f"small/{number:05}", Body=os.urandom(small_kb * 1000))
        client.put_object(Bucket="data", Key="large/one", Body=os.urandom(large_mb * 10**6))
        self.expected = {"small": (small, small * small_kb * 1000), "large": (1, large_mb * 10**6)}

    def play(self, playbook: str, limit: str = "all", **extra: object) -> float:
        """Run a playbook, which must succeed, and return the seconds it took."""
        start = time.monotonic()
        arguments = [PLAYBOOK, playbook, "-i", str(self.lab.inventory), "--limit", limit, "-e", json.dumps(extra)]
        keys = {"AWS_ACCESS_KEY_ID": self.s3.access_key, "AWS_SECRET_ACCESS_KEY": self.s3.secret_key}
        completed = subprocess.run(
            arguments, cwd=CHECKOUT, env={**os.environ, **keys}, capture_output=True, text=True, check=False
        )
        if completed.returncode:
            raise LabError(f"{playbook} failed: {completed.stdout[-2000:]}{completed.stderr[-500:]}")
        return time.monotonic() - start

    def stage(self, kind: str, nodes: int) -> float:
        """Return the seconds for staging one kind of data to the local disks."""
        self.everywhere(nodes, ["rm", "-rf", f"{STAGED}/{kind}"])
        return self.play(
            "playbooks/stage_data.yml",
            limit=",".join(node.name for node in self.lab.nodes[:nodes]),
            s3_client_endpoint_url=self.s3.url,
            s3_client_region=self.s3.region,
            stage_data_bucket="data",
            stage_data_prefix=f"{kind}/",
            stage_data_destination=f"{STAGED}/{kind}",
            stage_data_reserve_gib=1,
        )

    def transfer(self, kind: str, nodes: int) -> float:
        """Return the part of these seconds in which data was transferred."""
        path = f"{STAGED}/{kind}/.muster-stage/status.json"
        return max(float(json.loads(text)["seconds"]) for text in self.everywhere(nodes, ["cat", path]))

    def everywhere(self, nodes: int, arguments: list[str]) -> list[str]:
        """Return the output of a command on each of the first nodes, running on all of them at the same time."""

        def run(name: str) -> str:
            completed = self.lab.exec(name, arguments, timeout=600)
            if completed.returncode:
                raise LabError(f"{name}: {' '.join(arguments[:3])}: {completed.stdout}{completed.stderr}")
            return completed.stdout

        with ThreadPoolExecutor(nodes) as pool:
            return list(pool.map(run, [node.name for node in self.lab.nodes[:nodes]]))

    def read(self, top: str, kind: str, nodes: int, *drop: str) -> float:
        """Return the seconds until the last node has read one kind of data in a directory."""
        arguments = ["python3", "-c", READ, f"{top}/{kind}", str(self.threads), *drop]
        seconds = []
        for line in self.everywhere(nodes, arguments):
            number, size, duration = line.split()
            if (int(number), int(size)) != self.expected[kind]:
                raise LabError(f"{top}/{kind}: {number} files of {size} bytes were read, not {self.expected[kind]}")
            seconds.append(float(duration))
        return max(seconds)

    def remount(self, nodes: int) -> None:
        """Drop what s3fs has cached in memory."""
        self.everywhere(nodes, ["systemctl", "restart", "mnt-plain.mount", "mnt-cached.mount"])


def methods(bench: Bench, kind: str, nodes: int) -> dict[str, Callable[[], float]]:
    """Return the measurements of each method, in order."""

    def first() -> float:
        bench.everywhere(nodes, ["sh", "-c", f"umount {CACHED}; rm -rf {CACHE}/*"])
        bench.remount(nodes)
        return bench.read(CACHED, kind, nodes)

    def plain() -> float:
        bench.remount(nodes)
        return bench.read(PLAIN, kind, nodes)

    return {
        "s3fs": plain,
        "s3fs with cache, first time": first,
        "s3fs with cache, again": lambda: bench.read(CACHED, kind, nodes, CACHE),
        "stage, the whole command": lambda: bench.stage(kind, nodes),
        "stage, of it the transfer": lambda: bench.transfer(kind, nodes),
        "staged": lambda: bench.read(STAGED, kind, nodes, f"{STAGED}/{kind}"),
    }


def measure(rounds: int, small: int, small_kb: int, large_mb: int, threads: int) -> int:
    """Print the table."""
    print(
        EXPLANATION.format(
            threads=threads, rounds=rounds, small=small, small_kb=small_kb, large_mb=large_mb, latency=LATENCY * 1000
        )
    )
    with redirect_stdout(sys.stderr):
        lab = Lab.up(nodes=max(NODES), name=LAB)
    try:
        network = ipaddress.ip_network(f"{lab.nodes[0].address}/24", strict=False)
        with S3Server(str(network[1]), buckets=["data"]) as s3:
            bench = Bench(lab, s3, threads)
            bench.fill(small, small_kb, large_mb)
            prepare(bench)
            delay(s3)
            for kind in ("small", "large"):
                print(
                    f"\n{kind:<28}"
                    + "".join(f"{f'{nodes} node' + 's' * (nodes > 1):>12}{'GETs':>8}" for nodes in NODES)
                )
                rows: dict[str, str] = {}
                for nodes in NODES:
                    for method, seconds, gets in figures(bench, kind, nodes, rounds):
                        rows[method] = rows.get(method, f"{method:<28}") + f"{seconds:>10.2f} s{gets:>8}"
                print("\n".join(rows.values()), flush=True)
    finally:
        with redirect_stdout(sys.stderr):
            down(LAB)
    return 0


def figures(bench: Bench, kind: str, nodes: int, rounds: int) -> list[tuple[str, float, int]]:
    """Return each method, its median seconds, and the GETs in its last round."""
    timings: dict[str, list[float]] = {}
    gets = {}
    for _round in range(rounds):
        for method, once in methods(bench, kind, nodes).items():
            before = len(bench.s3.requests)
            timings.setdefault(method, []).append(once())
            requests = bench.s3.requests[before:]
            gets[method] = sum(verb == "GET" and path.startswith(f"/data/{kind}/") for verb, path in requests)
    return [(method, statistics.median(seconds), gets[method]) for method, seconds in timings.items()]


def prepare(bench: Bench) -> None:
    """Mount the bucket with both methods, and install boto3 on the nodes."""
    common = {"bucket": "data", "endpoint": bench.s3.url, "region": bench.s3.region, "read_only": True}
    mounts = [{**common, "path": PLAIN}, {**common, "path": CACHED, "cache": CACHE, "cache_keep_free_mib": 1024}]
    play = bench.lab.inventory.parent / "mount.yml"
    play.write_text(PLAY)
    bench.play(str(play), s3fs_mounts=mounts)
    bench.stage("large", len(bench.lab.nodes))


def delay(s3: S3Server) -> None:
    """Delay each response as if the server were far away."""
    judge = s3._judge

    def late(environ: dict[str, object]) -> tuple[str, dict[str, str]]:
        time.sleep(LATENCY)
        return judge(environ)

    setattr(s3, "_judge", late)  # noqa: B010 - for this object alone


def main() -> int:
    """Parse the command line and run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", type=int, default=300, help="number of small files")
    parser.add_argument("--small-kb", type=int, default=100)
    parser.add_argument("--large-mb", type=int, default=200)
    parser.add_argument("--threads", type=int, default=8, help="readers a node")
    arguments = parser.parse_args()
    try:
        return measure(arguments.rounds, arguments.small, arguments.small_kb, arguments.large_mb, arguments.threads)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
