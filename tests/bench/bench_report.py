# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a report's time, memory and page size, depending on the size of the run. Exits with 1 if a limit is exceeded.

By hand: python -m tests.bench.bench_report
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
HOUR = 3600


class Size(NamedTuple):
    """The size of a run: nodes, GPUs per node, hours, curves, and values per curve."""

    nodes: int
    gpus: int
    hours: int
    curves: int = 12
    values: int = 20_000


SIZES = (Size(1, 1, 1), Size(2, 8, 8), Size(8, 8, 24))
LIMITS = {"seconds": 10.0, "of a core": math.inf, "memory (MB)": 300.0, "page (MB)": 2.0}
"""Limits for the last of SIZES."""
EXPLANATION = """\
Time and peak memory of a separate process that writes the page, numbers, plots (SVG and PNG) and logbook from a record
with a sample of each GPU every 15 s and 12 curves of 20,000 values."""


def measure(size: Size, directory: Path) -> dict[str, float]:
    """Write a record and its report, and measure the report."""
    from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_report

    started, used = time.perf_counter(), time.process_time()
    written = write_report(directory / "runs" / "run", directory / "logbook", time.time())
    duration, used = time.perf_counter() - started, time.process_time() - used
    if written.drawing_error:
        raise SystemExit(written.drawing_error)
    if len(written.report["gpus"]) != size.nodes * size.gpus or len(written.report["curves"]) != size.curves:
        raise SystemExit("The report lacks GPUs or curves of its record.")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return dict(zip(LIMITS, (duration, used, memory, written.page.stat().st_size / 1e6), strict=True))


def make_record(size: Size, directory: Path) -> None:
    """Write a record whose GPUs change their activity so often that no plot can be simplified, and with curves."""
    from tests.unit.plugins.plugin_utils.report.records import Sample, write_events, write_record

    def sample(node: int, gpu: int, second: float) -> Sample:
        noise = hash((node, gpu, second))  # a hash of numbers is the same in every process
        return (noise % 101, noise % 40000, 40 + noise % 45, noise % 400)

    record = write_record(
        directory / "runs", "run", nodes=size.nodes, gpus=size.gpus, seconds=size.hours * HOUR, sample=sample
    )
    for number in range(size.curves):
        values = (2 / (1 + step / 500) + 0.1 * math.sin(step) for step in range(size.values))
        write_events(record / "logs" / "node0" / f"{number:02d}" / "events.out.tfevents.1", f"curve {number}", values)


def measure_apart(size: Size) -> dict[str, float]:
    """Run measure() in a separate process, so that its peak memory does not include writing the record."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        namespace = Path(directory, "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        make_record(size, Path(directory))
        command = [sys.executable, "-m", "tests.bench.bench_report", "--measure", directory, json.dumps(size)]
        result: dict[str, float] = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=CHECKOUT).stdout
        )
        return result


def main(arguments: list[str]) -> int:
    """Print the results; the exit code tells whether those for the largest run are within the limits."""
    if arguments[:1] == ["--measure"]:
        sys.path.insert(0, arguments[1])
        print(json.dumps(measure(Size(*json.loads(arguments[2])), Path(arguments[1]))))
        return 0
    print(EXPLANATION)
    print(f"\n{'run':<24}" + "".join(f"{what:>14}" for what in LIMITS), flush=True)
    result: dict[str, float] = {}
    for size in SIZES:
        result = measure_apart(size)
        many = f"{size.nodes * size.gpus} GPU{'s' if size.nodes * size.gpus > 1 else ''}, {size.hours} h"
        print(f"{many:<24}" + "".join(f"{result[what]:>14.1f}" for what in LIMITS), flush=True)
    print(
        f"{'limit':<24}" + "".join(f"{limit:>14.1f}" if limit < math.inf else f"{'':>14}" for limit in LIMITS.values())
    )
    return 1 if any(result[what] > limit for what, limit in LIMITS.items()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
