# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A command that takes minutes: it outlives the connection, and its end can be asked for again. Private to this
collection.

Runs on the node, standard library only, Python >= 3.8. A command that runs already (the play that started it was
interrupted) is followed, not started beside itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

TYPE_CHECKING = False  # typing itself would cost more than all we import
if TYPE_CHECKING:
    from typing import Any

MOST_OUTPUT = 200000  # characters of the output that are kept, from its end


def directory_of(request: dict[str, Any]) -> str:
    """Where the state of this command lies: the same for the same command, this user's alone."""
    identity = json.dumps([request["argv"], request["environment"], request["chdir"], os.geteuid()], sort_keys=True)
    name = hashlib.sha256(identity.encode()).hexdigest()[:20]
    path = os.path.join(tempfile.gettempdir(), f"muster-long-{os.geteuid()}-{name}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if os.path.islink(path) or os.stat(path).st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user: remove it")
    return path


def read(path: str) -> str:
    """The end of a file, "" where there is none."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.stat(path).st_size - MOST_OUTPUT))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def started_at(pid: int) -> str:
    """When a process was started, in ticks since boot; "" where it has ended. Numbers of processes come again."""
    stat = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return stat[19] if len(stat) > 19 and stat[0] != "Z" else ""


def is_running(path: str) -> bool:
    """Whether the keeper of a command is alive."""
    words = read(os.path.join(path, "keeper")).split()
    return len(words) == 2 and started_at(int(words[0])) == words[1]


def keep(path: str, request: dict[str, Any]) -> None:
    """Run the command in a session of its own and write down how it ended. Never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with open(os.path.join(path, "keeper.new"), "w", encoding="utf-8") as stream:
            stream.write(f"{os.getpid()} {started_at(os.getpid())}")
        os.rename(os.path.join(path, "keeper.new"), os.path.join(path, "keeper"))
        log = os.open(os.path.join(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(here, there)
        os.closerange(3, 256)
        code = 127
        try:
            # No AnsibleModule on this side: it runs alone on a node.
            # pylint: disable=ansible-bad-function
            code = subprocess.call(
                request["argv"], cwd=request["chdir"] or None, env={**os.environ, **request["environment"]}
            )
        except OSError as problem:
            os.write(2, f"{request['argv'][0]}: {problem.strerror}\n".encode())
        with open(os.path.join(path, "code.new"), "w", encoding="utf-8") as stream:
            stream.write(str(code))
        os.rename(os.path.join(path, "code.new"), os.path.join(path, "code"))
    finally:
        os._exit(0)


def start(path: str, request: dict[str, Any]) -> bool:
    """Start the command, unless it runs; return whether it does already."""
    if is_running(path) or os.path.exists(os.path.join(path, "code")):
        return True
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, "keeper"))
    if os.fork() == 0:
        keep(path, request)
    deadline = time.monotonic() + 10
    while not os.path.exists(os.path.join(path, "keeper")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return False


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Start the command or follow it, and answer once it has ended, or after request["patience"] seconds."""
    path = directory_of(request)
    followed = start(path, request) if request["start"] else False
    deadline = time.monotonic() + request["patience"]
    code = ""
    while not code and time.monotonic() < deadline:
        alive = is_running(path)
        code = read(os.path.join(path, "code"))
        if not code and not alive:
            code = read(os.path.join(path, "code")) or "lost"
        elif not code:
            time.sleep(0.05)
    output = read(os.path.join(path, "log"))
    if code:
        shutil.rmtree(path)
        return {"ended": True, "rc": 1 if code == "lost" else int(code), "output": output, "lost": code == "lost"}
    lines = [line.rpartition("\r")[2].strip() for line in output[-4000:].rstrip("\r\n").splitlines()]
    return {"ended": False, "followed": followed, "last_line": next((line for line in reversed(lines) if line), "")}
