# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's part in notices: where they come from on this node, and how its ranks receive them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.processes import signal_all, start_shielded
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import SIGNAL_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices import slurm, sources
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.ranks import (
    catches,
    rank_pids,
    read_members,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan, SaveNotice
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

OPTION = "--cloud-watch"  # command-line option of supervisor.py
NOTICE_FILE = "notice.json"  # the file that MUSTER_NOTICE_FILE names
# Files that request a notice when they appear in the run directory, and whether the run ends afterwards.
REQUESTS = {"save": False, "drain": True}
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGUSR1": signal.SIGUSR1, "SIGUSR2": signal.SIGUSR2}
MAX_LINE = 4096


class NodeNotices:
    """Notices on one node."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.name = plan["node"]["name"]
        self.settings: Data = dict(plan.get("notices") or {})
        self.signal = SIGNALS.get(str(self.settings.get("signal", "SIGTERM")))
        self.child: subprocess.Popen[bytes] | None = None
        self.has_looked = False  # whether the child was started, if this machine needs one
        self.buffer = b""
        self.launcher: int | None = None  # pid of the launcher whose ranks must save before the end
        self.signaled: set[int] = set()  # ranks that were sent the signal for this notice
        self.signals_due = 0.0
        self.awaits_removal = False  # whether the job may remove the notice file to report that it has saved

    def begin_attempt(self, plan: Plan) -> None:
        """Forget the notice that ended the last attempt."""
        self.plan, self.launcher, self.awaits_removal = plan, None, False
        self.has_looked = self.child is not None
        self.signaled.clear()
        with contextlib.suppress(OSError):
            os.unlink(self.journal.path(NOTICE_FILE))

    def step(self, now: float, ended: dict[int, int], running: bool) -> list[Data]:
        """Return new notices from this node, as fields for the lifeline; ended: wait statuses just reaped, by pid."""
        if running and self.launcher is not None and now >= self.signals_due:
            self.signals_due = now + SIGNAL_INTERVAL
            self.signal_ranks(self.find_ranks(self.launcher))
        if running and not self.has_looked:
            self.has_looked = True
            self.start_child()
        notices = self.requested() + self.announced() + slurm.take_notice(self.journal.directory)
        if self.child is not None and self.child.pid in ended:
            self.child = None
        return notices

    def pids(self) -> list[int]:
        """Return the pids of the processes for which the end of the job does not wait."""
        return [self.child.pid] if self.child is not None else []

    # - sources

    def start_child(self) -> None:
        """Start the child that polls the provider's metadata service, on machines of a known provider."""
        if not sources.sources_here(self.settings.get("metadata") or {}):
            return
        program = self.journal.path("supervisor.py")
        command = [sys.executable, "-I", "-S", program, OPTION, self.journal.directory]
        self.child = start_shielded(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if self.child is not None and self.child.stdout is not None:
            os.set_blocking(self.child.stdout.fileno(), False)

    def announced(self) -> list[Data]:
        """Return the announcements that the child has written."""
        if self.child is None or self.child.stdout is None:
            return []
        data = b""
        with contextlib.suppress(OSError, ValueError):
            data = os.read(self.child.stdout.fileno(), MAX_LINE)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        self.buffer = self.buffer[-MAX_LINE:]
        return [notice for notice in map(self.read_line, lines) if notice]

    def read_line(self, line: bytes) -> Data:
        """Return the notice in a line of the child, or {} if it is invalid."""
        try:
            value: Any = parse_json(line.decode("utf-8", "replace"))
        except ValueError:
            return {}
        if not isinstance(value, dict):
            return {}
        return {**value, "text": f"{self.name}: {value.get('text', '')}", "machine": True}

    def requested(self) -> list[Data]:
        """Return a notice for each request in the run directory, and remove the request."""
        notices = []
        for name, ends in REQUESTS.items():
            path = self.journal.path(name)
            if os.path.lexists(path):
                with contextlib.suppress(OSError):  # a directory is left in place, and is not a request
                    os.unlink(path)
                    text = "requested to save and end" if ends else "requested to save and continue"
                    notices.append({"source": "request", "text": text, "ends": ends, "seconds": 0.0})
        return notices

    # - delivery

    def deliver(self, notice: SaveNotice, number: int, launcher: int) -> str:
        """Write the notice file and signal the ranks that handle the signal; return a message about it for users.

        launcher: the launcher's pid. SIGTERM requests an end, so a run that continues gets only signals that request a
        save.
        """
        self.write_file(notice, number)
        ranks = self.find_ranks(launcher)
        if self.signal is None or (self.signal == signal.SIGTERM and not notice["ends"]):
            return f"{self.name}: wrote the notice file for {count(len(ranks), 'rank')}"
        self.launcher = launcher if notice["ends"] else None
        self.signaled = set()
        catching = self.signal_ranks(ranks)
        name = signal.Signals(self.signal).name
        if len(catching) == len(ranks):
            return f"{self.name}: wrote the notice file and sent {name} to {count(len(ranks), 'rank')}"
        without = len(ranks) - len(catching)
        return (
            f"{self.name}: wrote the notice file and sent {name} to {len(catching)} of {count(len(ranks), 'rank')}; "
            f"{without} without a handler for it {'was' if without == 1 else 'were'} left alone"
        )

    def find_ranks(self, launcher: int) -> list[int]:
        return rank_pids(read_members(self.plan, self.journal.directory, launcher))

    def signal_ranks(self, ranks: list[int]) -> list[int]:
        """Signal the ranks that handle the signal, each once; return their pids. Some may set a handler later."""
        if self.signal is None:
            return []
        catching = [pid for pid in ranks if pid not in self.signaled and catches(pid, self.signal)]
        self.signaled.update(catching)
        signal_all(catching, self.signal)
        return catching

    def write_file(self, notice: SaveNotice, number: int) -> None:
        """Write the file that MUSTER_NOTICE_FILE names."""
        content = {
            "number": number,
            "stop": notice["ends"],
            "seconds": notice["seconds"],
            "reason": notice["text"],
            "time": notice["time"],
        }
        self.awaits_removal = self.journal.write(NOTICE_FILE, content) and not notice["ends"]

    def has_saved(self) -> bool:
        """Return whether the job has removed the notice file, to report that it has saved; True only once."""
        if not self.awaits_removal or os.path.lexists(self.journal.path(NOTICE_FILE)):
            return False
        self.awaits_removal = False
        return True

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            signal_all([self.child.pid], signal.SIGKILL)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 rank", "8 ranks"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
