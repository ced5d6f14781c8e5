# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a transfer in a separate process that outlives the command that starts it; another command follows it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import time
import traceback
from typing import Any, Callable

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    StepError,
    print_line,
    run_and_report,
)
from ansible_collections.muster.training.plugins.module_utils._files.content import format_size
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import STAGE_DIRECTORY


def read_status(request: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of the background process, or an empty dict."""
    try:
        with open(os.path.join(request["destination"], STAGE_DIRECTORY, "status.json"), encoding="utf-8") as stream:
            status: dict[str, Any] = json.load(stream)
            return status
    except (OSError, ValueError):
        return {}


def lock(request: dict[str, Any]) -> int:
    """Lock the destination; return the lock's descriptor, or -1 if another process holds it."""
    descriptor = os.open(os.path.join(request["destination"], STAGE_DIRECTORY, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def start(request: dict[str, Any], task: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Start the task in a new session, unless it is already running."""
    descriptor = lock(request)
    while descriptor < 0 and read_status(request).keys() & {"step_error", "result"}:  # the holder is about to exit
        time.sleep(0.1)
        descriptor = lock(request)
    if descriptor < 0:
        return {"changed": False}  # still running after an earlier, interrupted call
    path = os.path.join(request["destination"], STAGE_DIRECTORY, "status.json")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if os.fork() == 0:
        os.setsid()
        log = os.open(
            os.path.join(request["destination"], STAGE_DIRECTORY, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
        )
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        try:
            task(request)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return {"changed": False}


def follow(request: dict[str, Any]) -> dict[str, Any]:
    """Print the progress until the transfer ends; return its result. Raise StepError."""
    started, pause = time.monotonic(), 0.1
    while True:
        descriptor = lock(request)
        status = read_status(request)
        if "step_error" in status:
            raise StepError(status["step_error"])
        if "result" in status:
            result: dict[str, Any] = status["result"]
            return result
        if descriptor >= 0 and time.monotonic() - started > 5:
            log = os.path.join(request["destination"], STAGE_DIRECTORY, "log")
            raise StepError(
                f"the transfer ended without a result (killed, or the node rebooted; see {log}). Run this again"
            )
        if descriptor >= 0:
            os.close(descriptor)
        if status.get("doing"):
            print_line(status["doing"])
        elif status.get("files"):
            transferred = status["from_source"] + status["from_peers"]
            rate = transferred / max(1.0, status["seconds"])
            source_bytes = format_size(status["from_source"])
            source = f", {source_bytes} of them from {status['source']}" if status["from_source"] else ""
            suffix = "; waiting for the other nodes" if status.get("finished") else ""
            print_line(
                f"{status['whole']} of {status['files']} files, {format_size(transferred)} copied, "
                f"{format_size(rate)}/s{source}{suffix}"
            )
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


def main(arguments: list[str], task: Callable[[dict[str, Any]], None]) -> int:
    """Start or follow a task whose request is in a file; return the exit status."""
    command, path = arguments
    with open(path, encoding="utf-8") as stream:
        request = json.load(stream)
    commands: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "start": functools.partial(start, task=task),
        "follow": follow,
    }
    return run_and_report(commands[command], request)
