# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a job reports about itself, in lines ``MUSTER_RESULT {...}`` of rank 0's log. Private to this collection.

Runs on the node and on the controller, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os

from ansible_collections.muster.training.plugins.module_utils._run.directory import read_tail, regular, write_private
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import earlier_logs, rank_logs

TYPE_CHECKING = False  # typing itself would cost more than all we import
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

FILE = "said.jsonl"  # in the run directory of rank 0's node: each report of a run that is over, one JSON object a line
LIMIT = 2**20  # bytes of it; of more, the last ones are kept
MARK = b"MUSTER_RESULT "  # begins a line in which a job reports what it has reached
REPORT = MARK.decode()
LONGEST = 65536  # bytes of such a line; a longer one is output like any other
BLOCK = 262144  # bytes of a log that are read at a time
DEEPEST = 20  # objects and lists within each other in what a job reports: whoever reads it calls itself for each


def depth(value: Any) -> int:
    """Return how deeply objects and lists are nested."""
    layer, found = [value], 0
    while True:
        layer = [one for one in layer if isinstance(one, (dict, list))]
        if not layer:
            return found
        found += 1
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]


def reported(line: str) -> Data | None:
    """Return what a job reports in a line ``MUSTER_RESULT {...}``; None if it is none, or is not to be trusted.

    A job may print anything. It must never be able to crash what shows it, or what reads the record later.
    """
    return read_object(line[len(REPORT) :]) if line.startswith(REPORT) and len(line) <= LONGEST else None


def read_object(text: str) -> Data | None:
    """Return the JSON object of a report, None if it is none, or too deep."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and depth(said) <= DEEPEST else None


def merged(lines: str) -> Data:
    """Return the last value of each key in the lines of said.jsonl."""
    said: Data = {}
    for line in lines.splitlines():
        said.update(read_object(line) or {})
    return said


def results_between(path: str, start: int, end: int, most: int) -> bytes:
    """Return the reports in a part of a log that begins with a whole line; the last `most` bytes of them."""
    found = []
    rest = b"\n"
    with contextlib.suppress(OSError), open(path, "rb", opener=regular) as stream:
        stream.seek(start)
        while start < end:
            block = stream.read(min(BLOCK, end - start))
            if not block:
                break
            start += len(block)
            lines = rest + block
            last = lines.rfind(b"\n")
            begin = lines.find(b"\n" + MARK)
            while 0 <= begin < last:
                stop = lines.find(b"\n", begin + 1)
                found.append(lines[begin + 1 : stop + 1])
                begin = lines.find(b"\n" + MARK, stop)
            rest = lines[last:] if len(lines) - last <= LONGEST else b""
    return b"".join(found)[-most:]


def keep_reports(path: str, plan: Data) -> str:
    """Return the lines of said.jsonl of a run that is over; pick them out of rank 0's logs the first time.

    path: the run's directory on rank 0's node.
    """
    file = os.path.join(path, FILE)
    if os.path.lexists(file):
        return read_tail(file, LIMIT)
    found = b""
    for log in dict.fromkeys([*earlier_logs(plan, path, 0), *rank_logs(plan, path, 0)]):
        with contextlib.suppress(OSError):
            found += results_between(log, 0, os.path.getsize(log), LIMIT)
    objects = [reported(line.rstrip("\r")) for line in found.decode("utf-8", "replace").split("\n")]
    lines = "".join(json.dumps(said) + "\n" for said in objects if said is not None)
    if len(lines) > LIMIT:
        lines = lines[-LIMIT:].partition("\n")[2]
    temporary = f"{file}.{os.getpid()}.tmp"
    try:
        write_private(temporary, lines)
        os.replace(temporary, file)
    except OSError:  # a full disk: who asks again has it looked for again
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return lines
