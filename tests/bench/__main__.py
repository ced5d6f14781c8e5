# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run benchmarks and write their sections of docs/benchmarks.md; sections of benchmarks that are not run stay as they
were.

Exits 1 where a limit is not kept, 2 where one cannot be measured.

By hand: python -m tests.bench [launch] [preflight] ... [arguments of bench_launch]; without a name, all.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "benchmarks.md"


class Bench(NamedTuple):
    """A section of the page.

    measures: the files and directories whose changes make its figures outdated. meaning: a comment below its table.
    """

    title: str
    measures: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    meaning: str = ""
    limits: bool = True


CALLS = ("plugins/plugin_utils/_node_call", "plugins/module_utils/_facts", "plugins/plugin_utils/_checks")
LAUNCH = (
    *CALLS,
    "playbooks/launch.yml",
    "roles/launch",
    "plugins/plugin_utils/_plan",
    "plugins/module_utils/_supervisor",
)
BENCHES = {
    "launch": Bench(
        "Launch: time until the last rank runs its first line, and until the end",
        LAUNCH,
        meaning="""\
Eight test hosts share two cores here, and a launch keeps both busy: of the 7.7 s of CPU time until the job's first line
on 8 nodes, 3 s are spent by the nodes themselves, 0.35 s each (0.14 s for the facts, 0.06 s for the start, 0.15 s for
the supervisor); real nodes do this in parallel. Another 2.5 s are spent by Ansible, which starts a process for each
task and node.""",
    ),
    "phases": Bench(
        "Launch: where the time goes",
        LAUNCH,
        meaning="""\
Ansible determines the minimum time of a launch: its start, the loading of plugins and skipped tasks take 0.7 s, and an
empty play takes 0.5 s.""",
        limits=False,
    ),
    "launchers": Bench(
        "Each launcher, on its own and with launch.yml, on 2, 4 and 8 nodes",
        LAUNCH,
        ("--rounds", "2"),  # for three sizes, with nine methods each
        """\
There are no limits for these figures. On its own, `deepspeed --hostfile` runs its first part once, on the first node;
with `launch.yml`, each node runs its own `deepspeed`, and here eight of them share two cores.
`launch_deepspeed_launcher=pdsh` starts in the same way as `deepspeed` on its own.""",
        limits=False,
    ),
    "slurm": Bench(
        "Slurm: from the queue to the first line",
        ("plugins/module_utils/_slurm", "plugins/plugin_utils/_slurm", "plugins/action/slurm_job.py"),
    ),
    "lifeline": Bench(
        "Lifeline: cost on the first node during a run",
        ("plugins/module_utils/_supervisor",),
    ),
    "stacks": Bench(
        "Stacks: cost for a rank, and bytes that a node sends",
        ("plugins/module_utils/_supervisor/programs/stack_hook.py",),
    ),
    "scale": Bench("A run on up to 512 nodes, simulated", ("plugins/module_utils/_supervisor",)),
    "restart": Bench(
        "Restart: from a failure to the first line of the next attempt",
        ("plugins/module_utils/_supervisor",),
        meaning="""\
The first table compares a restart, once all ranks have ended, with the same commands started immediately by hand. The
second table shows the phases after a failure. A silent node counts as lost after 10 s (`launch_silence_timeout`), and
can return within the next 15 s.""",
    ),
    "preflight": Bench("Preflight: from one node to 64", (*CALLS, "playbooks/preflight.yml", "roles/preflight")),
    "site": Bench(
        "site.yml when nothing needs to change, nearby and far away",
        ("playbooks/site.yml", "roles/code", "roles/python_env", "roles/pytorch", "plugins/plugin_utils/_software"),
        meaning="""\
Each node is called only once, for five roles together. On 64 test hosts, all on the two cores of this machine, a second
run takes 35.6 s (32.5 to 39.3 s in three rounds by hand, on 2026-11-27). The limit is 60 s.""",
    ),
    "code": Bench(
        "Code: additional time of a launch that compares the code when nothing has changed",
        ("plugins/module_utils/_code", "plugins/action/compare_code.py"),
    ),
    "rank_table": Bench(
        "Rank table, and files rendered from it",
        ("plugins/plugin_utils/_cluster",),
    ),
    "report": Bench("Report of a run: from one GPU to 64 for a day", ("plugins/plugin_utils/_report",)),
    "benchmark": Bench(
        "Benchmark of a cluster: time in addition to the measurements",
        (
            "plugins/module_utils/_benchmark_job",
            "plugins/plugin_utils/_experiments/benchmark",
            "playbooks/benchmark.yml",
        ),
        meaning="""\
The limit is the time that the longest benchmark leaves of ten minutes. All nodes start torch on the same cores here;
each node of a real cluster has its own.""",
    ),
    "paperspace": Bench(
        "Inventory of a Paperspace account",
        ("plugins/inventory/paperspace.py", "plugins/plugin_utils/_clouds/paperspace"),
    ),
    "software": Bench(
        "Python environment with torch, on one node and on four",
        ("roles/python_env", "roles/pytorch", "plugins/module_utils/_python_env"),
    ),
    "image": Bench(
        "Container image: from an archive on this machine, on one node and on four",
        ("roles/container_image", "plugins/module_utils/_container_image"),
        meaning="""\
The first node gets the archive by SSH and passes it on while its Docker loads it: each of the other nodes gets a share
from the first node and the rest from its peers.""",
    ),
    "data": Bench(
        "Training data: mounted, cached and staged",
        ("roles/s3fs", "roles/stage_data", "plugins/module_utils/_stage_data", "plugins/module_utils/_mounts"),
        meaning="""\
Through a mount, each node fetches all data itself, so four nodes fetch it four times. With staging, the data is fetched
from S3 once, regardless of the number of nodes, and each later epoch is read at the speed of the local disk. The cost
of staging in addition to the transfer is Ansible's own time, regardless of the size of the data. [data.md](data.md)
explains which to choose.""",
        limits=False,
    ),
}
MEASURED = re.compile(r"^Measured on (\d{4}-\d\d-\d\d)", re.MULTILINE)
DAYS_OF_GRACE = timedelta(days=7)
"""Number of days that code changes may wait until an idle machine is available for measuring them."""
HEAD = """# Benchmarks

Measured by `make bench`; each section states the date and the machine.

All test hosts are containers on a single machine and share its cores: compare the figures in a table with each other,
not with those of other machines."""


def machine() -> str:
    """Describe this machine."""
    cores = len(os.sched_getaffinity(0))
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    kernel = ".".join(platform.release().split(".")[:2])
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{cores} cores ({platform.machine()}), {pages * page / 2**30:.0f} GiB of memory, {system}, Linux {kernel}"


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page by title, each with its current text."""
    return {part.partition("\n")[0]: f"## {part}".rstrip() for part in page.split("\n## ")[1:]}


def outdated_sections(page: str, last_change: Callable[[Sequence[str]], str]) -> list[str]:
    """Return the names of the benchmarks whose code changed more than DAYS_OF_GRACE after their section was measured.

    last_change: returns the day of the last change of paths, as YYYY-MM-DD.
    """
    sections = sections_of(page)
    outdated = []
    for name, item in BENCHES.items():
        match = MEASURED.search(sections.get(item.title, ""))
        if match and date.fromisoformat(last_change(item.measures)) - date.fromisoformat(match[1]) > DAYS_OF_GRACE:
            outdated.append(name)
    return outdated


def environment() -> dict[str, str]:
    """Return the environment of a benchmark.

    It lets Python write bytecode, as on a user's machine: without bytecode, each start of ansible-playbook compiles its
    plugins again.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> int:
    """Run the benchmarks and write their sections."""
    chosen = [word for word in sys.argv[1:] if word in BENCHES] or list(BENCHES)
    options = [word for word in sys.argv[1:] if word not in BENCHES]
    sections = sections_of(PAGE.read_text() if PAGE.exists() else "")
    worst = 0
    for name in chosen:
        bench = BENCHES[name]
        when = f"Measured on {time.strftime('%Y-%m-%d')}: {machine()}; load {os.getloadavg()[1]:.1f} before the start."
        print(f"\n{bench.title}\n\n{when}\n", flush=True)
        arguments = [*bench.arguments, *(options if name == "launch" else [])]
        command = [sys.executable, "-m", f"tests.bench.bench_{name}", *arguments]
        completed = subprocess.run(
            command, cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, text=True, check=False
        )
        if completed.returncode not in (0, 1) or not completed.stdout:
            print(f"{name} could not be measured; {PAGE.name} is left as it was.", file=sys.stderr)
            return 2
        worst = max(worst, completed.returncode)
        print(completed.stdout, flush=True)
        verdict = (
            "" if not bench.limits else "Not all limits are kept." if completed.returncode else "All limits are kept."
        )
        parts = [f"## {bench.title}", when, f"```text\n{completed.stdout.rstrip()}\n```", verdict, bench.meaning]
        sections[bench.title] = "\n\n".join(filter(None, parts))
    PAGE.parent.mkdir(exist_ok=True)
    existing = [sections[bench.title] for bench in BENCHES.values() if bench.title in sections]
    PAGE.write_text("\n\n".join([HEAD, *existing]) + "\n")
    print(f"Written: {PAGE.relative_to(CHECKOUT)}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
