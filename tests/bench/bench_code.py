# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how much longer launch.yml takes if it compares the local code with the nodes' code. Exits with 1 if the
limit is exceeded.

By hand: python -m tests.bench.bench_code
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FILES, ROUNDS = (20, 500), 7
MORE = 0.3
"""The limit in seconds for the smaller tree, which has the size of a project."""
EXPLANATION = f"""\
Seconds of `ansible-playbook launch.yml` with a bare script on two nodes that are this machine, without SSH: medians
(fastest-slowest) of {ROUNDS} rounds in which each method ran once. With code_source, the local tree is listed and
compared with that of each node, in the call that reads its facts; nothing has changed, so nothing is copied. more: the
median of the differences in each round."""


def project(directory: Path, files: int) -> Path:
    """Create a local tree, and the same tree in its location on the nodes."""
    folder = directory / f"project{files}"
    for number in range(files):
        path = folder / f"part{number % 10}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"NUMBER = {number}\n" * 40)
    (folder / "train.py").write_text("print('done')\n")
    shutil.copytree(folder, directory / "there" / folder.name)  # preserves the files' timestamps
    return folder


def take(directory: Path, name: str, number: int, settings: dict[str, Any]) -> float:
    """Return the seconds that a launch takes."""
    from tests.unit.typed import typed

    variables = {"run_id": f"{name}-{number}", "launch_launcher": "env", "launch_report": False, **settings}
    command = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", "-e", json.dumps(variables)]
    started = time.perf_counter()
    completed = typed(directory, command)
    seconds = time.perf_counter() - started
    if completed.returncode:
        raise SystemExit(completed.stdout[-3000:])
    return seconds


def main() -> int:
    """Measure and print."""
    from tests.unit.two_nodes import two_nodes

    over = 0
    print(EXPLANATION)
    print(f"\n{'files':>5}  {'without':<18}{'with code_source':<18}{'more':>6}   limit")
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        directory = Path(scratch)
        two_nodes(directory, 24)
        for files in FILES:
            target = directory / "there" / project(directory, files).name
            script = {"launch_script": "train.py", "launch_working_directory": str(target)}
            code = {"code_source": str(directory / target.name), "code_directory": str(target)}
            take(directory, f"first{files}", 0, {**script, **code})
            result = []
            for number in range(ROUNDS):
                bare = take(directory, f"bare{files}", number, script)
                result.append((bare, take(directory, f"code{files}", number, {**script, **code})))
            more = statistics.median(compared - bare for bare, compared in result)
            row = f"{files:>5}  "
            for values in zip(*result, strict=True):
                row += f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})".ljust(18)
            limit = f"{MORE:g}" if files == FILES[0] else ""
            if limit and more > MORE:
                limit, over = f"{limit}: not kept", 1
            print(f"{row}{more:>6.2f}   {limit}".rstrip(), flush=True)
    return over


if __name__ == "__main__":
    sys.exit(main())
