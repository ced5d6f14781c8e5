# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a step that takes minutes on a node and report its progress: a command, or this collection's code.

It survives the connection (plugins/module_utils/_detached/command.py): a step that an interrupted play left running is
followed to its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._detached.command import strip_credentials
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import RESULT_MARK
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    FIRST_LINE,
    call_node,
    parse_reply,
    standard_input,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import end_play_without_reader

NOT_IN_CHECK_MODE = {"changed": True, "skipped": True, "msg": "not run in check mode"}
MAX_TAIL_LINES = 40  # number of lines at the end of a failed command's output
MAX_LINE_LENGTH = 1000  # characters
MAX_REPORT_INTERVAL = 300.0  # maximum number of seconds between reports, which become rarer the longer a step takes
CONTROL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t\x20-\x7e\u00a0-\U0010ffff]")


def last_lines(lines: list[str]) -> list[str]:
    """Return the last lines of a program's output as they would appear on a screen, without terminal control codes."""
    plain_lines = [CONTROL_CODES.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in lines]
    return [line[-MAX_LINE_LENGTH:] for line in plain_lines if line][-MAX_TAIL_LINES:]


def describe_last_line(line: str) -> str:
    """Return the last line of a program's output for a progress report, unless it is its result, which is not for
    users.
    """
    return f": {line[:120]}" if line and not line.startswith(RESULT_MARK) else ""


def task_result(rc: int, output: str, lost: bool, log: str = "") -> dict[str, Any]:
    """Return the result for the task.

    A command may end with a line MUSTER-RESULT {"changed": ..., ...}, or {"step_error": "message"} if it fails. An
    "error" means that the code could not run at all. After a failure without either, or with "show_output": true beside
    it, the message includes the last lines of output.
    """
    lines = output.split("\n")
    if not lines[-1]:
        lines.pop()
    fields: dict[str, Any] = {}
    for line in reversed(lines):
        if line.startswith(RESULT_MARK):
            fields = parse_reply(line[len(RESULT_MARK) :]) or {}
            break
    output_lines = [line for line in lines if not line.startswith(RESULT_MARK)]
    result = {"changed": fields.pop("changed", True), "rc": rc, "stdout_lines": output_lines, "result": fields}
    if rc or lost or "error" in fields:
        reason = "it was killed by a signal, or the machine restarted" if lost else f"exit code {rc}"
        text = [strip_credentials(fields.get("step_error") or fields.get("error") or reason)]
        tail = (
            last_lines(output_lines) if fields.get("show_output", not fields.keys() & {"step_error", "error"}) else []
        )
        if tail:
            text = [f"{text[0]}. The last lines of its output:", *(f"  {line}" for line in tail)]
            text += [f"All of its output is on that node, in {log}"] if log else []
        return {"changed": True, "failed": True, "rc": rc, "msg": "\n".join(text)}
    return result


@contextlib.contextmanager
def progress_lock() -> Iterator[int | None]:
    """Open the file whose lock is held by the one node that reports progress: sixty reports in parallel would be
    unreadable.

    It is in a temporary directory shared by all workers of this ansible-playbook. None if it cannot be created.
    """
    path = os.path.join(C.DEFAULT_LOCAL_TMP, "muster-floor")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        descriptor = None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def acquire_progress_lock(descriptor: int | None) -> bool:
    """Return whether this node reports progress: the first to try, then the next once it ends; without locks, all
    nodes.
    """
    try:
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that does not support locks
        return True
    return True


def run_command(  # noqa: PLR0913
    action: ActionBase,
    task_vars: Mapping[str, Any],
    description: str,
    argv: Sequence[str],
    stdin: str = "",
    chdir: str = "",
    follow: bool = True,
    show_every: float = 10,
) -> dict[str, Any]:
    """Run a command on the action's node until it ends, as documented for the long_command module; return its
    result.
    """
    environment: dict[str, str] = {}
    for part in action._task.environment or []:
        environment.update({str(k): str(v) for k, v in (action._templar.template(part) or {}).items()})
    request: dict[str, Any] = {"description": description, "argv": list(argv), "chdir": chdir, "stdin": stdin}
    request.update(environment=environment, wait_seconds=2.0, run="" if follow else secrets.token_hex(8))
    name = action._task.delegate_to or task_vars["inventory_hostname"]
    started_at = reported_at = time.monotonic()
    interval = show_every
    status = call_node(action, "_detached.command", {**request, "start": True}, task_vars)
    if status.get("followed"):
        Display().display(f"{name}: {description}: already running; following it to its end")
    with progress_lock() as lock:
        while not status["ended"]:
            end_play_without_reader(os.getppid())
            now = time.monotonic()
            if now - reported_at >= interval and acquire_progress_lock(lock):
                reported_at, interval = now, min(max(show_every, now - started_at), MAX_REPORT_INTERVAL)
                elapsed = format_duration(now - started_at)
                Display().display(f"{name}: {description} ({elapsed}){describe_last_line(status['last_line'])}")
            status = call_node(action, "_detached.command", {**request, "start": False, "wait_seconds": 5.0}, task_vars)
    result = task_result(status["rc"], status["output"], status["lost"], status["log"])
    if result.get("failed"):
        result["msg"] = f"{name}: {description}: {result['msg']}"
    elif result["result"].get("notice"):
        Display().display(f"{name}: {description}: {result['result']['notice']}")
    return result


def run_code(  # noqa: PLR0913
    action: ActionBase,
    task_vars: Mapping[str, Any],
    description: str,
    python: str,
    module: str,
    request: Mapping[str, Any],
    follow: bool = True,
) -> dict[str, Any]:
    """Run main(request) from one of the module_utils on the node, like run_command; return its result, or the failure.

    Neither the code nor the request is in argv.

    Args:
        description: a short description for the waiting user.
        python: the interpreter, by name or path.
        module: its name, such as "_torch.torch_proof".
        follow: whether to follow the same step left running by an interrupted play, instead of starting it again.
    """
    stdin = standard_input(module, request, RESULT_MARK).decode()
    result = run_command(action, task_vars, description, [python, "-c", FIRST_LINE], stdin, follow=follow)
    return result if result.get("failed") else {"changed": result["changed"], **result["result"]}
