# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long ansible-inventory takes for a Paperspace account with 1000 machines, excluding the server's own
time.

Prints one line; exits 1 where the median of the runs is over the limit. By hand: python -m tests.bench.bench_paperspace
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.objects import machine
from tests.support.paperspace_server.server import PaperspaceServer

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 2.0


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        directory = Path(name)
        namespace = directory / "ansible_collections" / "muster"
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        inventory = directory / "paperspace.yml"
        inventory.write_text("plugin: muster.training.paperspace\n")
        account = PaperspaceAccount([machine(number) for number in range(arguments.machines)])
        beyond = []
        served = []
        for _run in range(arguments.runs):
            with PaperspaceServer(account) as server:
                began = time.perf_counter()
                completed = subprocess.run(
                    [Path(sys.executable).with_name("ansible-inventory"), "-i", inventory, "--list"],
                    cwd=directory,
                    env=os.environ
                    | {
                        "ANSIBLE_COLLECTIONS_PATH": name,
                        "PAPERSPACE_API_KEY": server.key,
                        "PAPERSPACE_API_URL": server.url,
                    },
                    check=True,
                    stdout=subprocess.PIPE,
                )
                seconds = time.perf_counter() - began
                hosts = json.loads(completed.stdout)["_meta"]["hostvars"]
                if len(hosts) != arguments.machines:
                    raise SystemExit(f"{len(hosts)} hosts instead of {arguments.machines}")
                beyond.append(seconds - server.busy_seconds)
                served.append(server.busy_seconds)
    median = statistics.median(beyond)
    print(
        f"paperspace inventory: {arguments.machines} machines, {median:.2f} s beyond the server's own "
        f"{statistics.median(served):.2f} s (median of {arguments.runs}, slowest {max(beyond):.2f} s, "
        f"limit {LIMIT_SECONDS:g} s)"
    )
    return 0 if median <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
