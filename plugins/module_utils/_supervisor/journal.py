# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a supervisor writes into its run directory: events.jsonl, status.json, result.json."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry, write_atomically
from ansible_collections.muster.training.plugins.module_utils._run.node_loss import boot_identity
from ansible_collections.muster.training.plugins.module_utils._run.processes import oom_kills
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import RANKS_FILE, log_directory
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import open_private, write_json
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import plan_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Callable, Iterator
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan

IDENTIFYING = ("plan.json", "supervisor.json")  # documents that others use to find the run
MAX_EVENTS = 1000  # kept in memory
RESERVE = 262144  # bytes of disk space reserved for the final records of a run that fills the disk


def identity(path: str) -> tuple[int, ...] | None:
    """Return a value that changes if a file is replaced or written, or None if it was removed."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


class Journal:
    """The state of a node's part of a run, and its files; a full disk does not stop a run."""

    def __init__(self, directory: str, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan
        self.oom_kills = oom_kills()
        self.state = "starting"
        self.message = ""
        self.started = time.monotonic()
        self.since = time.time()  # time at which the state began
        self.status_due = 0.0
        self.identities: dict[str, tuple[int, ...] | None] = {}  # identities of the documents that identify the run
        self.directory_modes: dict[str, int] = {}  # original permissions of the run directory and its parent
        self.events: list[str] = []  # the last lines of events.jsonl
        self.event_count = 0  # total number of events
        self.damage = ""  # damage that the job has done to the run directory
        self.on_event: Callable[[str, str], None] | None = None  # called with the kind and text of each event
        self.unwritten = ""  # the error, if the run directory could not be written to

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def log_path(self, name: str) -> str:
        """Return the path of a file in the attempt's log directory."""
        return os.path.join(log_directory(self.plan, self.directory), name).rstrip("/")

    def replace_plan(self, plan: Plan) -> None:
        """Record the plan of a run that this node leads from now on."""
        self.plan = plan
        with self.tolerate_full_disk():
            write_atomically(self.path("plan.json"), plan_text(plan))
            self.identify()

    def record_ranks(self) -> None:
        """Record this node's ranks in an attempt, next to the logs of that attempt."""
        node = self.plan["node"]
        name = os.path.join(self.plan.get("logs") or "", RANKS_FILE)
        self.write(name, {"first_rank": node["first_rank"], "slots": node["slots"]})

    def begin_attempt(self, plan: Plan) -> None:
        """Record a new attempt's plan, and create its log directory."""
        self.record_ranks()  # record the ranks of the attempt that has ended
        self.plan = plan
        with self.tolerate_full_disk():
            for directory in (self.log_path(""), self.log_path("ranks")):
                os.makedirs(directory, mode=0o700, exist_ok=True)
            fields = plan["restart"]["fields"]
            for name in (*fields.get("settings", ()), *fields.get("hostfiles", ())):
                if name in plan["files"]:
                    write_atomically(self.path(name), plan["files"][name])
            write_atomically(self.path("plan.json"), plan_text(plan))
            self.identify()
        self.set_state("restarting" if plan["node"]["slots"] else "spare")

    def record_plan(self) -> None:
        """Write the plan again after a node has joined the run."""
        with self.tolerate_full_disk():
            write_atomically(self.path("plan.json"), plan_text(self.plan))
            self.identify()

    @contextlib.contextmanager
    def tolerate_full_disk(self) -> Iterator[None]:
        """Record that the run directory could not be written, and continue: the job may not need that disk."""
        try:
            yield
        except OSError as error:
            self.unwritten = error.strerror or str(error)

    def write(self, name: str, value: Any) -> bool:
        """Write a JSON file in the run directory; return whether that succeeded."""
        with self.tolerate_full_disk():
            write_json(self.path(name), value)
            return True
        return False

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Append an event to events.jsonl, for the person who is watching the run."""
        record = {"time": time.time(), "event": kind, "text": text}
        record.update(fields)
        line = json.dumps(record) + "\n"
        path = self.path("events.jsonl")
        with self.tolerate_full_disk(), open(path, "a", encoding="utf-8", opener=open_private) as stream:
            stream.write(line)
        self.events = [*self.events, line][-MAX_EVENTS:]
        self.event_count += 1
        if self.on_event is not None:
            self.on_event(kind, text)

    def restore_events(self, lines: list[str]) -> None:
        """Write the events of a run that another node has led until now."""
        with self.tolerate_full_disk(), open(
            self.path("events.jsonl"), "a", encoding="utf-8", opener=open_private
        ) as stream:
            stream.write("".join(lines))
        self.events = [*self.events, *lines][-MAX_EVENTS:]
        self.event_count += len(lines)

    def set_state(self, state: str, message: str = "") -> None:
        if (state, message) != (self.state, self.message):
            self.state, self.message, self.since = state, message, time.time()
            self.status_due = 0.0

    def write_status(self, now: float, fields: Data) -> None:
        """Write status.json; fields: those of the launcher and this node's end of the lifeline."""
        status = {
            "run_id": self.plan["run_id"],
            "node_rank": self.plan["node"]["node_rank"],
            "name": self.plan["node"]["name"],
            "state": self.state,
            "message": self.message,
            "since": self.since,
            "started": self.started_at(),
            "updated": time.time(),
        }
        status.update(fields)
        self.status_due = now + self.plan["timeouts"]["heartbeat"]
        self.restore()
        self.write("status.json", status)

    def started_at(self) -> float:
        """Return when this supervisor started, in seconds since 1970 according to the clock's current setting."""
        return time.time() - (time.monotonic() - self.started)

    def restore(self) -> None:
        """Restore the run directory and the documents that others use to find the run, if the job has changed them."""
        intact = all(self.identities.get(name) == identity(self.path(name)) for name in IDENTIFYING)
        if intact and self.is_private():
            return
        with self.tolerate_full_disk():
            for directory in (os.path.dirname(self.directory), self.directory):
                if not os.path.isdir(directory) or os.path.islink(directory):
                    remove_entry(directory)
                    os.mkdir(directory, 0o700)
                os.chmod(directory, 0o700)
            write_atomically(self.path("plan.json"), plan_text(self.plan))
            self.identify()
            # a reader continues from where it stopped
            if self.events and not os.path.lexists(self.path("events.jsonl")):
                write_atomically(self.path("events.jsonl"), "".join(self.events))
            self.damage = (
                f"the job on {self.plan['node']['name']} removed, replaced or locked files in its run directory "
                f"{self.directory}: the run continues, but output that was removed is lost"
            )

    def is_private(self) -> bool:
        """Return whether the run directory and its parent are directories with their initial permissions."""
        for directory in (os.path.dirname(self.directory), self.directory):
            try:
                status = os.lstat(directory)
            except OSError:
                return False
            mode = self.directory_modes.get(directory, 0o700)
            if not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o777 != mode:
                return False
        return True

    def remember_modes(self) -> None:
        """Record the permissions of the run directory and its parent; some file systems, such as CIFS, do not have
        them.

        Otherwise, the permissions that such a file system shows for a directory with mode 0700 would count as changed
        by the job.
        """
        for directory in (os.path.dirname(self.directory), self.directory):
            with contextlib.suppress(OSError):
                self.directory_modes[directory] = os.lstat(directory).st_mode & 0o777

    def identify(self) -> None:
        """Write which process supervises the run, and remember the documents that identify it as they are now."""
        self.write("supervisor.json", {"pid": os.getpid(), "boot": boot_identity(), "oom_kills": self.oom_kills})
        self.identities = {name: identity(self.path(name)) for name in IDENTIFYING}
        self.remember_modes()

    def reserve_space(self) -> None:
        """Reserve disk space for the final records of a run that fills the disk."""
        with self.tolerate_full_disk(), open(self.path("reserve"), "wb", opener=open_private) as reserve:
            os.posix_fallocate(reserve.fileno(), 0, RESERVE)

    def free_reserved_space(self) -> None:
        """Free the reserved disk space, once no process of the job can use it up."""
        with contextlib.suppress(OSError):
            os.unlink(self.path("reserve"))
