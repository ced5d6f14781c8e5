# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a command that takes minutes: it outlives the connection, and its result can be read later.

A command that is still running after its play was interrupted is followed, not started twice. The output of a failed
command stays on the node, without the credentials in its URLs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import RESULT_MARK

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

MAX_OUTPUT = 200000  # number of characters returned from the end of the output
MAX_LOGS = 20  # number of failed commands' logs kept per user
MAX_LOG_BYTES = 200 * 2**20  # total bytes of these logs; the newest is always kept
ROOT_LOGS = "/var/log/muster"
CREDENTIALS = re.compile(r"(://)[^/\s@'\"]+@")  # https://user:token@host


def strip_credentials(text: str) -> str:
    """Return the text without usernames and passwords in URLs, except in lines for the play."""
    lines = text.split("\n")
    return "\n".join(line if line.startswith(RESULT_MARK) else CREDENTIALS.sub(r"\1****@", line) for line in lines)


def state_directory(request: dict[str, Any]) -> str:
    """Return this command's state directory: the same directory for the same command, and private to this user."""
    parts = [request[part] for part in ("argv", "environment", "chdir", "stdin", "run")] + [os.geteuid()]
    name = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]
    path = os.path.join(tempfile.gettempdir(), f"muster-long-{os.geteuid()}-{name}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if os.path.islink(path) or os.stat(path).st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user. Remove it: sudo rm -r {path}")
    return path


def read(path: str) -> str:
    """Return the end of a file, or "" if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.stat(path).st_size - MAX_OUTPUT))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def read_output(path: str) -> str:
    """Return the end of a command's output, followed by its last complete line for the play."""
    tail = result = ""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace", newline="\n") as stream:
        for line in stream:
            if line.startswith(RESULT_MARK):
                result = line
            else:
                tail += line
                if len(tail) > 2 * MAX_OUTPUT:
                    tail = tail[-MAX_OUTPUT:]
    return strip_credentials(tail[-MAX_OUTPUT:]) + result


def started_at(pid: int) -> str:
    """Return a process's start time in ticks since boot, or "" if it has ended. Pids alone may be reused."""
    stat = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return stat[19] if len(stat) > 19 and stat[0] != "Z" else ""


def is_running(path: str) -> bool:
    """Return whether a command's keeper process is alive."""
    fields = read(os.path.join(path, "keeper")).split()
    return len(fields) == 2 and started_at(int(fields[0])) == fields[1]


def run_command(path: str, request: dict[str, Any]) -> None:
    """Run the command in a new session and record its exit code. Does not return."""
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with open(os.path.join(path, "keeper.new"), "w", encoding="utf-8") as stream:
            stream.write(f"{os.getpid()} {started_at(os.getpid())}")
        os.rename(os.path.join(path, "keeper.new"), os.path.join(path, "keeper"))
        log = os.open(os.path.join(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with tempfile.TemporaryFile(dir=path) as stdin_file:  # has no name, so it disappears with the command
            stdin_file.write(request["stdin"].encode())
            stdin_file.seek(0)
            os.dup2(stdin_file.fileno(), 0)
        for source, target in ((log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        code = 127
        try:
            # no AnsibleModule here: this process runs detached on a node; pylint: disable=ansible-bad-function
            code = subprocess.call(
                request["argv"], cwd=request["chdir"] or None, env={**os.environ, **request["environment"]}
            )
        except OSError as error:
            os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode())
        with open(os.path.join(path, "code.new"), "w", encoding="utf-8") as stream:
            stream.write(str(code))
        os.rename(os.path.join(path, "code.new"), os.path.join(path, "code"))
    finally:
        os._exit(0)


def start(path: str, request: dict[str, Any]) -> bool:
    """Start the command unless it is running; return whether it was already running."""
    if is_running(path) or os.path.exists(os.path.join(path, "code")):
        return True
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, "keeper"))
    if os.fork() == 0:
        run_command(path, request)
    deadline = time.monotonic() + 10
    while not os.path.exists(os.path.join(path, "keeper")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return False


def log_directory() -> str:
    """Return the directory for the logs that stay on the node."""
    if os.geteuid() == 0:
        return ROOT_LOGS
    return os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".muster", "logs")


def remove_old_logs(directory: str) -> None:
    """Remove the oldest logs that exceed MAX_LOGS or MAX_LOG_BYTES; always keep the newest."""
    paths = [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".log")]
    logs = [(os.stat(path).st_mtime_ns, os.stat(path).st_size, path) for path in paths]
    used = 0
    for number, (_written, size, path) in enumerate(sorted(logs, reverse=True)):
        used += size
        if number and (number >= MAX_LOGS or used > MAX_LOG_BYTES):
            os.unlink(path)


def save_log(path: str, title: str) -> str:
    """Save a failed command's output, readable only by its user; return its path, or "" if that is impossible."""
    source = os.path.join(path, "log")
    directory = log_directory()
    name_parts = [
        time.strftime("%Y%m%dT%H%M%S"),
        os.uname().nodename,
        re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")[:60],
    ]
    log_path = os.path.join(directory, "-".join([*name_parts, os.path.basename(path)[-6:]]) + ".log")
    try:
        if os.stat(source).st_size == 0:
            return ""
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(source, encoding="utf-8", errors="replace", newline="\n") as raw, open(
            descriptor, "w", encoding="utf-8"
        ) as log:
            for line in raw:
                if not line.startswith(RESULT_MARK):
                    log.write(strip_credentials(line))
        remove_old_logs(directory)
    except OSError:
        return ""
    return log_path


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Start or follow the command, and return its state once it has ended, or after request["wait_seconds"] seconds."""
    path = state_directory(request)
    followed = start(path, request) if request["start"] else False
    deadline = time.monotonic() + request["wait_seconds"]
    code = ""
    while not code and time.monotonic() < deadline:
        alive = is_running(path)
        code = read(os.path.join(path, "code"))
        if not code and not alive:
            code = read(os.path.join(path, "code")) or "lost"
        elif not code:
            time.sleep(0.05)
    if code:
        output = read_output(os.path.join(path, "log"))
        log = save_log(path, request["description"]) if code != "0" else ""
        shutil.rmtree(path)
        lost = code == "lost"
        return {"ended": True, "rc": 1 if lost else int(code), "output": output, "lost": lost, "log": log}
    output = strip_credentials(read(os.path.join(path, "log")))
    lines = [line.rpartition("\r")[2].strip() for line in output[-4000:].rstrip("\r\n").splitlines()]
    return {"ended": False, "followed": followed, "last_line": next((line for line in reversed(lines) if line), "")}
