# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send a run's updates to its live page as they occur, from a single process, because one process per reply costs
more.
"""

from __future__ import annotations

import json
import os
import time

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import print_line
from ansible_collections.muster.training.plugins.module_utils._run.identity import reply_as_user
from ansible_collections.muster.training.plugins.module_utils._run.live_samples import FILE
from ansible_collections.muster.training.plugins.module_utils._run.page import page
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PAGE_STREAM_CHECK_INTERVAL,
    PAGE_STREAM_INTERVAL,
    PAGE_STREAM_SILENCE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

FILES = (FILE, "status.json", "events.jsonl", "result.json", "plan.json")


def fingerprint(paths: list[str]) -> list[tuple[int, ...]]:
    """Return a value that changes when any of these files is written, replaced or removed."""
    prints: list[tuple[int, ...]] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            prints.append(())
        else:
            prints.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return prints


def stream(request: Data) -> Data:
    """Write a run's updates, one per line, and return the last ones when the run ends or after `seconds`.

    Without any updates, a line is sent as a sign of life.
    """
    end = time.monotonic() + request["seconds"]
    while True:
        reply = page(request)
        began = time.monotonic()
        if not reply["active"] or began >= end:
            return reply
        print_line(request["mark"] + json.dumps(reply))
        request = {**request, "cursors": reply["cursors"], "sample_cursor": reply["sample_cursor"]}
        paths = [os.path.join(reply["directory"], name) for name in FILES] + list(reply["cursors"])
        before = fingerprint(paths)
        time.sleep(PAGE_STREAM_INTERVAL)
        while fingerprint(paths) == before and time.monotonic() < min(end, began + PAGE_STREAM_SILENCE):
            time.sleep(PAGE_STREAM_CHECK_INTERVAL)


def main(request: Data) -> Data:
    """Return the last updates of a run; ``error`` in it is a message for the user."""
    return reply_as_user(request, stream)
