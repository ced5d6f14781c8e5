# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run all benchmarks and write docs/benchmarks.md. Exits 1 where a limit is not kept, 2 where one cannot be measured.

By hand: python -m tests.bench [arguments of bench_launch]
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "benchmarks.md"
BENCHES = {
    "bench_launch": "Launch: until the last rank runs its first line, and to the end",
    "bench_launchers": "Each launcher, bare and under launch.yml, on 2, 4 and 8 nodes",
    "bench_preflight": "Preflight: from one node to 64",
    "bench_rank_table": "Rank table and what is rendered from it",
    "bench_paperspace": "Inventory of a Paperspace account",
    "bench_software": "Python environment with torch, on one node and on four",
    "bench_data": "Training data: mounted, cached and staged",
}
ROUNDS = {"bench_launchers": ["--rounds", "2"]}  # of three sizes, each with nine ways


def machine() -> str:
    """This machine in words."""
    cores = len(os.sched_getaffinity(0))
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    kernel = ".".join(platform.release().split(".")[:2])
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    load = os.getloadavg()[1]
    return (
        f"{cores} cores ({platform.machine()}), {pages * page / 2**30:.0f} GiB of memory, {system}, Linux {kernel}; "
        f"load {load:.1f} before the start"
    )


def main() -> int:
    """Run, print, write."""
    head = f"Measured by `make bench` on {time.strftime('%Y-%m-%d')}. Machine: {machine()}."
    print(head, flush=True)
    sections = [
        "# Benchmarks",
        head,
        "All test hosts are containers on this one machine and share its cores: compare figures of one table with each "
        "other, not with those of other machines.",
    ]
    worst = 0
    for name, title in BENCHES.items():
        arguments = sys.argv[1:] if name == "bench_launch" else ROUNDS.get(name, [])
        command = [sys.executable, "-m", f"tests.bench.{name}", *arguments]
        done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 1) or not done.stdout:
            print(f"{name} could not be measured; {PAGE.name} is left as it was.", file=sys.stderr)
            return 2
        worst = max(worst, done.returncode)
        print(f"\n{title}\n\n{done.stdout}", flush=True)
        verdict = "Not all limits are kept." if done.returncode else "All limits are kept."
        sections += [f"## {title}", f"```text\n{done.stdout.rstrip()}\n```", verdict]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n\n".join(sections) + "\n")
    print(f"Written: {PAGE.relative_to(CHECKOUT)}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
