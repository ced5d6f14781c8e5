# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for updates of a run on a node: lines of a rank, events, the end."""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size, open_regular, parse_json
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
)
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.job_results import results_between
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import earlier_logs, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive
from ansible_collections.muster.training.plugins.module_utils._run.status import ACTIVE_STATES, silence_of
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    conforms,
    read_result,
    read_status,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    COLLECT_INTERVAL,
    COMPILER_SILENCE,
    LAST_OUTPUT_GRACE_PERIOD,
    WATCH_POLL_INTERVAL,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

EVENT = {"text": str}
CHUNK = 262144  # bytes of one log in each reply
BACKLOG = 8 * CHUNK  # bytes of a log not yet shown beyond which only its end is shown


def watch(request: Data) -> Data:  # noqa: C901
    """Wait up to ``wait`` seconds for updates of a run on this node: lines of a rank, events, the end."""
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
        raise RunError(f"run {request['run_id']} does not exist on this node")
    path, plan = runs[0]
    cursors = dict(request["cursors"])
    start_time = time.monotonic()
    while True:
        status = read_status(path) or {"state": "starting", "message": ""}
        active = status["state"] in ACTIVE_STATES or (status["state"] == "ended" and is_alive(path))
        if active and not is_alive(path):
            time.sleep(LAST_OUTPUT_GRACE_PERIOD)  # its last output may not be on the disk yet
            status = read_status(path) or status
            active = False
            if status["state"] in ACTIVE_STATES:
                status["state"] = "died"
        if active and time.monotonic() < start_time + min(COLLECT_INTERVAL, request["wait"]):
            time.sleep(WATCH_POLL_INTERVAL)
            continue
        outputs = {}
        skipped_bytes = {}
        earlier, logs = watched_logs(plan, path, request["local_rank"], request.get("attempt") or 0)
        for log in earlier + logs:
            begin = cursors.get(log, 0)
            skipped = skip_backlog(log, cursors)
            text = ""
            if skipped:
                skipped_bytes[log] = skipped
                text = results_between(log, begin, begin + skipped, CHUNK).decode("utf-8", "replace")
            text += read_new(log, cursors, log in earlier or not active)
            if text:
                outputs[log] = text
                if log in earlier and file_size(log) > cursors[log]:
                    break  # the next reply continues here
        events = []
        for line in read_new(os.path.join(path, "events.jsonl"), cursors, False).splitlines():
            with contextlib.suppress(ValueError):  # a full disk may cut a line
                event = parse_json(line)
                if conforms(event, EVENT):
                    events.append(event)
        has_more = any(file_size(log) > cursors[log] for log in outputs)
        if outputs or events or not active or time.monotonic() >= start_time + request["wait"]:
            return {
                "changed": False,
                "active": active or has_more,
                "status": status,
                "outputs": outputs,
                "left_out": skipped_bytes,
                "seconds_since_output": silence_of(logs),
                "compilers": compilers_of(path, logs),
                "events": events,
                "unfinished": next(filter(None, (partial_line(log, cursors) for log in reversed(logs))), ""),
                "cursors": cursors,
                "result": None if active else read_result(path),
                "directory": path,
            }
        time.sleep(WATCH_POLL_INTERVAL)


def compilers_of(path: str, logs: list[str]) -> list[str]:
    """Return the compilers that a silent job is running, since compiling takes minutes; [] if the job is not silent."""
    from ansible_collections.muster.training.plugins.module_utils._run.compilers import running_compilers

    return running_compilers(path) if (silence_of(logs) or 0.0) >= COMPILER_SILENCE else []


def watched_logs(plan: Data, path: str, local_rank: int, first: int) -> tuple[list[str], list[str]]:
    """Return the earlier and the current logs of a rank, from the attempt `first` on."""
    # without its plan, which the supervisor will soon restore, we do not know which logs the ranks have
    is_unknown = plan.get("damaged") or (plan.get("attempt") or 0) < first
    logs = [] if is_unknown else list(dict.fromkeys(rank_logs(plan, path, local_rank)))
    return earlier_logs(plan, path, local_rank, first), logs


def read_new(path: str, cursors: dict[str, int], final: bool) -> str:
    """Return the text added to a log since the last reply; whole lines only while it may still grow."""
    offset = cursors.get(path, 0)
    try:
        with open(path, "rb", opener=open_regular) as stream:
            # the job has removed it, and there is a new file in its place
            if os.fstat(stream.fileno()).st_size < offset:
                offset = 0
            with contextlib.suppress(OSError):  # there is no more data, or the file system cannot tell
                offset = os.lseek(stream.fileno(), offset, os.SEEK_DATA)  # the middle of a log may have been removed
            stream.seek(offset)
            data = stream.read(CHUNK)
    except OSError:
        return ""
    if not final or len(data) == CHUNK:
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == CHUNK:
            end = CHUNK  # a single line of 256 KiB: send it in pieces
        data = data[:end]
    if data:
        cursors[path] = offset + len(data)
    return data.replace(b"\0", b"").decode("utf-8", "replace")  # removed parts are read as zeros


def skip_backlog(path: str, cursors: dict[str, int]) -> int:
    """If a log has grown far beyond the cursor, move it close to the log's end; return the number of bytes skipped.

    The new position is the start of a line, unless the last line alone is longer than a reply.
    """
    offset = cursors.get(path, 0)
    try:
        size = file_size(path)
        if size - offset <= BACKLOG:
            return 0
        with open(path, "rb", opener=open_regular) as stream:
            stream.seek(size - CHUNK)
            begin = stream.read(CHUNK).find(b"\n") + 1
    except OSError:
        return 0
    cursors[path] = size - CHUNK + begin if begin else size - 4096
    return cursors[path] - offset


def partial_line(path: str, cursors: dict[str, int]) -> str:
    """Return an unfinished last line, such as a progress bar, as a terminal shows it, or an empty string."""
    try:
        with open(path, "rb", opener=open_regular) as stream:
            stream.seek(max(cursors.get(path, 0), file_size(path) - 4096))
            text = stream.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.rpartition("\n")[2].rstrip("\r").rpartition("\r")[2].strip()[:300]
