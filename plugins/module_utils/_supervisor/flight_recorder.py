# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the files that torch's flight recorder writes when an NCCL collective times out."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.flight_records import validate_operations
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import FLIGHT_RECORDER_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import flight_reader

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan

FILE = "flight_recorder_rank_"  # prefix of a file in the run directory, followed by the rank


def read_operations(directory: str, plan: Plan, since: float, timeout: float = FLIGHT_RECORDER_TIMEOUT) -> list[Data]:
    """Return the operations of this node's ranks, from the dumps written since a given time.

    All files are read in parallel, each by a separate process; a dump that is not read in time counts as missing.
    """
    deadline = time.monotonic() + timeout
    first_rank = plan["node"]["first_rank"]
    readers = {}
    for rank in range(first_rank, first_rank + plan["node"]["slots"]):
        path = os.path.join(directory, f"{FILE}{rank}")
        if is_newer(path, since):
            readers[rank] = start_reader(path)
    rows = []
    for rank, reader in readers.items():
        rows += validate_operations([{**row, "rank": rank} for row in output(reader, deadline)], [rank])
    return rows


def is_newer(path: str, since: float) -> bool:
    """Return whether a file exists and was written since a given time: an earlier attempt may have left one."""
    try:
        return os.lstat(path).st_mtime >= since
    except OSError:
        return False


def start_reader(path: str) -> subprocess.Popen[bytes]:
    """Start the process that reads a dump."""
    return subprocess.Popen(
        [sys.executable, "-I", flight_reader.__file__, path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def output(reader: subprocess.Popen[bytes], deadline: float) -> list[Data]:
    """Return a reader's output, or [] if it failed or has not finished by the deadline (time.monotonic())."""
    try:
        data, _errors = reader.communicate(timeout=max(0.0, deadline - time.monotonic()))
        rows = parse_json(data.decode("utf-8", "replace"))
    except subprocess.TimeoutExpired:
        reader.kill()
        reader.communicate()
        return []
    except ValueError:
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
