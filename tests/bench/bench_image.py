# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long it takes to load an image from a local archive onto one node and onto four. Exits with 1 if a limit
is exceeded.

By hand: python -m tests.bench.bench_image --rounds 1 --megabytes 1000
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from tests.lab import Lab, LabError
from tests.lab.hosts import down

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = str(CHECKOUT / ".venv" / "bin" / "ansible-playbook")
LAB = "bench-image"
NODES = 4
IMAGE = "team/bench:1"
MB = 10**6
MOST_RATIO = 1.5
"""Limit for the ratio of the time for four nodes to the time for one node."""
MOST_RECEIVED = 1.1
"""Limit for the ratio of the bytes that a node receives to the size of the archive; data that is sent twice exceeds it.
"""
CORES = 0.6 * len(os.sched_getaffinity(0)) / NODES
"""Cores of each node; the rest are for the controller, and for what this machine does for all nodes: with 0.8, four
simultaneous loads take 1.5 times as long as one.
"""
EXPLANATION = """\
Seconds of a play with container_image: an archive of {megabytes} MB on this machine, one layer of random bytes, is
loaded into Docker on the nodes; one line for each round. Docker is installed, but the image is missing. received: MB
received by each node's network card during this time. Each node is limited to {cores:.1f} of a core, even if it runs
alone, since four real machines do not share cores. For the same reason, the directories of Docker and muster are in
memory: otherwise the disk that the four nodes share would be measured. The nodes are connected by a bridge on this
machine. Docker uses the vfs storage driver, which for a single layer makes no more copies than other drivers."""
IN_MEMORY = ("/var/lib/docker", "/var/lib/muster")
PLAY = f"""
- hosts: training
  gather_facts: false
  any_errors_fatal: true
  vars: {{container_image_name: {IMAGE}, container_image_reserve_gib: 0}}
  roles: [muster.training.container_image]
"""


def entry(name: str, size: int) -> tarfile.TarInfo:
    """Return a member of an archive."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info


def make_archive(path: Path, megabytes: int) -> None:
    """Write an archive in the format of `docker save`, with an image that has one layer."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar, open("/dev/urandom", "rb") as random:
        tar.addfile(entry("data.bin", megabytes * MB), random)
    with layer.open("rb") as stream:
        diff = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
    text = json.dumps({**config, "history": [{"created_by": "bench"}]}).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer/layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar, layer.open("rb") as stream:
        tar.addfile(entry("layer/layer.tar", layer.stat().st_size), stream)
        for member, body in ((name, text), ("manifest.json", manifest)):
            tar.addfile(entry(member, len(body)), io.BytesIO(body))
    layer.unlink()


def run(lab: Lab, playbook: str, *arguments: str) -> None:
    """Run a playbook; it must succeed."""
    command = [PLAYBOOK, playbook, "-i", str(lab.inventory), *arguments]
    completed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise LabError(f"{playbook} failed: {completed.stdout[-2000:]}{completed.stderr[-500:]}")


def sh(lab: Lab, node: str, script: str) -> str:
    """Return the output of a script run as root on a node; it must succeed."""
    completed = lab.exec(node, ["sh", "-c", script])
    if completed.returncode:
        raise LabError(f"{node}: {completed.stderr.strip()}")
    return completed.stdout


def received(lab: Lab, nodes: Sequence[str]) -> list[int]:
    """Return the bytes received so far by each node's network card."""
    texts = [sh(lab, node, "cat /proc/net/dev") for node in nodes]
    return [int(text.partition("eth0:")[2].split()[0]) for text in texts]


def forget(lab: Lab) -> None:
    """Remove the image from nodes, including leftovers from loading it."""
    for node in lab.nodes:
        output = sh(lab, node.name, "docker images --all --quiet | sort -u | xargs -r docker rmi --force")
        print(output, end="", file=sys.stderr)
        sh(lab, node.name, "rm -rf /var/lib/muster/container_image; sync")


def timed(lab: Lab, playbook: Path, archive: Path, nodes: Sequence[str]) -> tuple[float, list[int]]:
    """Return the seconds that a run takes for some nodes, and the bytes that each receives; afterwards, all have the
    image.
    """
    forget(lab)
    before = received(lab, nodes)
    start = time.monotonic()
    run(lab, str(playbook), "-e", f"container_image_archive={archive}", "--limit", ",".join(nodes))
    duration = time.monotonic() - start
    fetched = [now - then for now, then in zip(received(lab, nodes), before, strict=True)]
    ids = {sh(lab, node, f"docker image inspect --format '{{{{.Id}}}}' {IMAGE}") for node in nodes}
    if len(ids) != 1:
        raise LabError(f"the nodes do not have the same image: {ids}")
    return duration, fetched


def measure(lab: Lab, rounds: int, megabytes: int) -> int:
    """Print the table; return 1 if a limit is exceeded."""
    names = [node.name for node in lab.nodes]
    within_limits = True
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir="/var/tmp") as scratch:
        playbook, archive = Path(scratch, "play.yml"), Path(scratch, "image.tar")
        playbook.write_text(PLAY)
        make_archive(archive, megabytes)
        most = MOST_RECEIVED * archive.stat().st_size
        print(f"\n{'1 node':>8}{'received':>10}{'4 nodes':>9}{'ratio':>7}  received by each", flush=True)
        for _round in range(rounds):
            item, by_one = timed(lab, playbook, archive, names[:1])
            four, by_each = timed(lab, playbook, archive, names)
            megabytes_each = " ".join(f"{value / MB:.0f}" for value in by_each)
            print(f"{item:8.1f}{by_one[0] / MB:10.0f}{four:9.1f}{four / item:7.2f}  {megabytes_each}", flush=True)
            within_limits &= four / item < MOST_RATIO and all(value < most for value in (*by_one, *by_each))
    print(f"\nLimits: ratio under {MOST_RATIO}, received under {MOST_RECEIVED} times the archive by each node.")
    return 0 if within_limits else 1


def main() -> int:
    """Measure and print; the exit code tells whether the limits are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args()
    with redirect_stdout(sys.stderr):
        lab = Lab.up(nodes=NODES, name=LAB)
    try:
        for node in lab.nodes:
            for path in IN_MEMORY:
                sh(lab, node.name, f"mkdir -p {path} && mount -t tmpfs tmpfs {path}")
        run(lab, "playbooks/docker.yml", "-e", '{"docker_engine_settings": {"storage-driver": "vfs"}}')
        for node in lab.nodes:
            lab.limit_cpu(node.name, CORES)
        print(EXPLANATION.format(megabytes=options.megabytes, cores=CORES))
        return measure(lab, options.rounds, options.megabytes)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        with redirect_stdout(sys.stderr):
            down(LAB)


if __name__ == "__main__":
    sys.exit(main())
