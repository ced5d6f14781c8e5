# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replies for the live page of a run: updates of the run, and a search in the output of a node's ranks."""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import open_regular
from ansible_collections.muster.training.plugins.module_utils._run import live_samples
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import node_directories
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import earlier_logs, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.watch import watch

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

SEARCHED_BYTES = 16 * 2**20  # bytes searched at the end of each log
BLOCK = 2**20  # bytes read at once
MAX_REMAINDER = 2**20  # bytes of a line that are searched
MAX_MATCHES = 50  # number of most recent matches shown for each rank
MAX_LINE = 400  # number of characters of a match that are sent


def page(request: Data) -> Data:
    """Return the updates that watch() has available immediately, and the samples from all nodes."""
    reply = watch({**request, "wait": 0})
    path = os.path.join(reply["directory"], live_samples.FILE)
    samples, cursor = live_samples.read_samples(path, request["sample_cursor"])
    return {**reply, "samples": samples, "sample_cursor": cursor}


def search(request: Data) -> Data:
    """Return the last lines in each rank's output on this node that contain a text, ignoring case."""
    runs = node_directories(request)
    if not runs:
        raise RunError(f"run {request['run_id']} does not exist on this node")
    path, plan = runs[0]
    seen: set[str] = set()
    matches: list[Any] = []
    node = plan["node"]
    for local_rank in range(node["slots"]):
        logs = [*earlier_logs(plan, path, local_rank), *rank_logs(plan, path, local_rank)]
        rank_matches: list[Any] = []
        for log in dict.fromkeys(logs):
            if log not in seen:
                seen.add(log)
                name = os.path.relpath(log, path)
                lines = matching_lines(log, request["text"])
                rank_matches += [{"rank": node["first_rank"] + local_rank, "log": name, "line": line} for line in lines]
        matches += rank_matches[-MAX_MATCHES:]
    return {"changed": False, "matches": matches}


def matching_lines(path: str, text: str) -> list[str]:
    """Return the last lines of a log that contain a text, ignoring the case of ASCII letters."""
    pattern = text.encode("utf-8", "replace").lower()
    matches: list[bytes] = []
    remainder = b""
    try:
        with open(path, "rb", opener=open_regular) as stream:
            size = os.fstat(stream.fileno()).st_size
            begin = max(0, size - SEARCHED_BYTES)
            stream.seek(begin)
            while begin < size:
                block = stream.read(min(BLOCK, size - begin))
                if not block:
                    break
                begin += len(block)
                *lines, remainder = (remainder + block).split(b"\n")
                remainder = remainder[-MAX_REMAINDER:]
                if pattern in block.lower() or pattern in b"\n".join(lines[:1]).lower():
                    matches = [*matches, *(line for line in lines if pattern in line.lower())][-MAX_MATCHES:]
    except OSError:
        return []
    if pattern in remainder.lower():
        matches.append(remainder)
    return [shorten(line.decode("utf-8", "replace"), text) for line in matches[-MAX_MATCHES:]]


def shorten(line: str, text: str) -> str:
    """Return the part of a line around a text, with at most MAX_LINE characters."""
    line = line.rstrip("\r").rpartition("\r")[2] if text.lower() in line.rpartition("\r")[2].lower() else line
    position = max(0, line.lower().find(text.lower()))
    start = max(0, position - MAX_LINE // 2) if len(line) > MAX_LINE else 0
    return line[start : start + MAX_LINE].replace("\0", "")
