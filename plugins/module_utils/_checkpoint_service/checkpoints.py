# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy the checkpoints of runs to S3 during and after the run.

    checkpoints.py serve SETTINGS                   run forever, as a service
    checkpoints.py wait SETTINGS RUN_ID TIMEOUT     wait until all of a run's checkpoints are copied, TIMEOUT in seconds

Each run below the runs' directory has a directory of checkpoints. Each entry in it, a file or a directory, is a
checkpoint. It is copied when it has not changed for a few seconds, or when its marker exists. The data is uploaded
first, each version under its own key; then latest.json names it, with sizes and SHA-256, so whatever it names is
complete. An interrupted upload resumes with the parts that S3 has. All state is in S3, none on the node.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.local import (
    find_runs,
    is_alive,
    read_status,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.service import CheckpointService
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    StepError,
    print_line,
    run_and_report,
)
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json


def wait(settings: dict[str, Any], run_id: str) -> dict[str, Any]:
    """Wait until a run's checkpoints have been copied. Raise StepError on timeout."""
    deadline = time.monotonic() + settings["wait_timeout"]
    runs = [run for run in find_runs(settings) if run.run_id == run_id]
    result: dict[str, Any] = {"changed": False, "copied": {}}
    for run in runs:
        last_text = ""
        while True:
            status = read_status(run)
            if not status["alive"] and not status["pending"] and not is_alive(run):
                break
            pending = ", ".join(status["pending"]) or "?"
            text = "the run is still active" if is_alive(run) else f"not copied yet: {pending}"
            text += f"; {status['problem']}" if status["problem"] else ""
            if text != last_text:
                last_text = text
                print_line(text)
            if time.monotonic() > deadline:
                raise StepError(
                    f"after {settings['wait_timeout']} s, some checkpoints of {run_id} have not been copied "
                    f"({text}). See `journalctl -u muster_checkpoints` on this node, or increase "
                    "checkpoints_wait_timeout to wait longer"
                )
            time.sleep(1)
        result["copied"][f"node{run.node_rank}"] = {"to": status["to"], "checkpoints": status["copied"]}
    return result


def main(arguments: list[str]) -> int:
    """Serve or wait; return the exit status."""
    settings = read_json(arguments[1])
    if settings is None:
        raise SystemExit(f"{arguments[1]} is missing or broken. Write it again: ansible-playbook checkpoints.yml")
    if arguments[0] == "serve":
        CheckpointService(settings).serve()
    run_id, timeout = arguments[2], int(arguments[3])
    return run_and_report(functools.partial(wait, run_id=run_id), {**settings, "wait_timeout": timeout})
