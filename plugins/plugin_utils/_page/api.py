# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's API: returns a JSON document for a path and its parameters. Independent of HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PAGE_WAIT_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._page.commands import COMMANDS, Commands
from ansible_collections.muster.training.plugins.plugin_utils._page.feed import CallNode, RunFeed
from ansible_collections.muster.training.plugins.plugin_utils._page.run_list import RunList
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import RunView

MAX_FEEDS = 8  # number of runs that are read at the same time
MAX_SEARCH = 200  # characters
Parameters = Mapping[str, str]


class ApiError(Exception):
    """A request that cannot be answered: the HTTP status, and a message for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_number(parameters: Parameters, name: str) -> int:
    """Return a parameter as a number, or 0 if it is missing. Raise ApiError if it is invalid."""
    text = parameters.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ApiError(400, f"{name} is not a number")
    return int(text)


class PageApi:
    """The documents that the page requests."""

    def __init__(self, runs: RunList, call: CallNode, commands: Commands) -> None:
        self.runs = runs
        self.call = call
        self.commands = commands
        self.feeds: dict[str, RunFeed] = {}
        self.lock = threading.Lock()
        self.search_lock = threading.Lock()
        self.documents: dict[str, Callable[[str, Parameters], Any]] = {
            "": self.run,
            "curves": self.curves,
            "output": self.output,
            "search": self.search,
        }

    def get(self, path: str, parameters: Parameters) -> Any:
        """Return the document at a path under /api. Raise ApiError if the path is unknown or the request is invalid."""
        parts = path.strip("/").split("/")
        if parts == ["runs"]:
            return {"runs": self.runs.list(), "directory": str(self.runs.directory), "now": time.time()}
        if parts[0] == "runs" and len(parts) in (2, 3) and (parts[2:] or [""])[0] in self.documents:
            return self.documents[(parts[2:] or [""])[0]](parts[1], parameters)
        raise ApiError(404, "unknown path")

    def post(self, path: str) -> Any:
        """Start the command for a button: /runs/RUN/COMMAND. Raise ApiError."""
        parts = path.strip("/").split("/")
        if len(parts) != 3 or parts[0] != "runs" or parts[2] not in COMMANDS:
            raise ApiError(404, "unknown path")
        self.check_run(parts[1])
        obstacle = self.commands.run(parts[2], parts[1])
        if obstacle:
            raise ApiError(409, obstacle)
        return {"started": parts[2]}

    def check_run(self, run_id: str) -> None:
        """Raise ApiError if a run has no record here."""
        if not self.runs.has(run_id):
            raise ApiError(404, f"no run {ascii(run_id)[:80]} was launched from here")

    def feed(self, run_id: str) -> RunFeed:
        """Return the feed of a run, starting it if it is new."""
        self.check_run(run_id)
        with self.lock:
            feed = self.feeds.get(run_id)
            if feed is None or feed.is_closed:
                plan, result = self.runs.read(run_id)
                feed = self.feeds[run_id] = RunFeed(
                    RunView(run_id, plan, result), self.call, read_plan=lambda: self.runs.read(run_id)[0]
                )
                feed.start()
            feed.look()
            while len(self.feeds) > MAX_FEEDS:
                self.feeds.pop(min(self.feeds, key=lambda name: self.feeds[name].last_look)).close()
        return feed

    def run(self, run_id: str, parameters: Parameters) -> Any:
        """Return the state of a run; if the page already has this version, wait for the next one, within a time
        limit.
        """
        feed = self.feed(run_id)
        if "seen" in parameters:
            feed.wait_for_change(read_number(parameters, "seen"), PAGE_WAIT_TIMEOUT)
        seen = feed.version  # before the snapshot, which may be newer
        snapshot = feed.view.snapshot(read_number(parameters, "events"))
        return {**snapshot, "seen": seen, "command": self.commands.describe(run_id), "commands": COMMANDS}

    def curves(self, run_id: str, parameters: Parameters) -> Any:
        """Return the curves of a run, or only their version if the page already has them."""
        feed, node = self.feed(run_id), parameters.get("node", "")
        curves = feed.view.curves(node if node in feed.names else "")
        return {"version": curves["version"]} if parameters.get("version") == curves["version"] else curves

    def output(self, run_id: str, parameters: Parameters) -> Any:
        """Return a rank's output after a line."""
        try:
            return self.feed(run_id).output(read_number(parameters, "rank"), read_number(parameters, "after"))
        except LookupError as error:
            raise ApiError(404, str(error)) from None

    def search(self, run_id: str, parameters: Parameters) -> Any:
        """Return the lines from all ranks that contain a text; run one search at a time, since each reads all logs."""
        text = parameters.get("text", "").strip()
        if not text or len(text) > MAX_SEARCH:
            raise ApiError(400, f"type 1 to {MAX_SEARCH} characters to search for")
        feed = self.feed(run_id)
        if not self.search_lock.acquire(blocking=False):
            raise ApiError(409, "another search is running: wait until it ends")
        try:
            return feed.search(text)
        finally:
            self.search_lock.release()
