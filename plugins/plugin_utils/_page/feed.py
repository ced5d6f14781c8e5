# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a run for its page from the node that leads it, over one connection, or from the leader's successor if it is
lost.

The output of other ranks is read from their nodes, and only while someone views it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PAGE_CALL_TIMEOUT,
    PAGE_FEED_TIMEOUT,
    PAGE_IDLE_INTERVAL,
    PAGE_IDLE_TIMEOUT,
    PAGE_LOST_TIMEOUT,
    PAGE_POLL_INTERVAL,
    PAGE_SEARCH_TIMEOUT,
    PAGE_STREAM_SILENCE,
)
from ansible_collections.muster.training.plugins.plugin_utils._page.output_tail import OutputTail
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import RunView, is_news, is_output_news
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_int, to_mappings
from ansible_collections.muster.training.plugins.plugin_utils._record.node_replies import READ

CallNode = Callable[[str, Mapping[str, Any], float], dict[str, Any]]
"""Sends a request to a node, and returns its reply within a timeout in seconds. Raises NodeCallError."""
PARALLEL_CALLS = 8
MAX_MATCHES = 1000
MAX_TAILS = 8  # number of ranks whose output is kept


class NewsStream(Protocol):
    """Updates that a node sends as they occur."""

    def next(self, timeout: float) -> dict[str, Any] | None:
        """Return the next update, or None if none arrives within the timeout in seconds, or there are no more."""

    def close(self) -> None:
        """End the stream."""


class NodeCallError(Exception):
    """A node did not send a reply.

    The message explains why. is_final: the node rejected the request, so a retry is useless.
    """

    def __init__(self, message: str, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class RankOutput:
    """A rank's output, and the position at which the next reply continues."""

    def __init__(self) -> None:
        self.tail = OutputTail()
        self.cursors: dict[str, Any] = {}
        self.read = 0.0  # time at which the rank's node was last queried
        self.error = ""
        self.lock = threading.Lock()


class RunFeed:
    """Reads a run as long as someone is viewing it."""

    def __init__(
        self,
        view: RunView,
        call: CallNode,
        clock: Callable[[], float] = time.monotonic,
        read_plan: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.view = view
        self.call = call
        self.read_plan = read_plan  # returns the plan in the run's record
        self.clock = clock
        self.names = [node["name"] for node in view.nodes]
        self.hub = 0
        self.attempt = 0  # the first attempt to show: a successor has the output of the attempts that it leads
        self.cursors: dict[str, Any] = {}
        self.sample_cursor = [0, 0, 0]
        self.last_reply = self.last_look = clock()
        self.wake = threading.Event()
        self.is_closed = False
        self.outputs: dict[int, RankOutput] = {}
        self.open_stream: Callable[[str, Mapping[str, Any]], NewsStream | None] | None = getattr(call, "stream", None)
        self.stream: NewsStream | None = None
        self.stream_due = 0.0  # time at which a stream may be reopened after a failure
        self.version = 0  # increased whenever the view changes
        self.changes = threading.Condition()

    # - the run

    def start(self) -> None:
        """Start reading the run in a thread."""
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Read the run until the feed is closed, the run has ended, or nobody has viewed it for a long time."""
        while not self.is_closed:
            try:
                pause = self.step()
            except Exception as error:  # a bug must not freeze the page silently
                text = f"reading the run failed: {clean_text(str(error), 300) or type(error).__name__}"
                self.view.connection = {"node": "", "state": "lost", "text": text}
                pause = PAGE_IDLE_INTERVAL
            self.note_change()
            if pause is None:
                break
            self.wake.wait(pause)
            self.wake.clear()
        self.end_stream()

    def close(self) -> None:
        """Stop reading."""
        self.is_closed = True
        self.wake.set()
        self.end_stream()
        self.note_change()

    def note_change(self) -> None:
        """Wake up the requests that are waiting for changes."""
        with self.changes:
            self.version += 1
            self.changes.notify_all()

    def wait_for_change(self, version: int, timeout: float) -> None:
        """Wait until the view has changed since this version, for at most the timeout in seconds."""
        with self.changes:
            self.changes.wait_for(lambda: self.version != version or self.is_closed, timeout)

    def look(self) -> None:
        """Note that someone is viewing the run."""
        was_idle = self.clock() - self.last_look > PAGE_IDLE_TIMEOUT
        self.last_look = self.clock()
        if was_idle:
            self.wake.set()

    def step(self) -> float | None:
        """Query the node that leads the run; return the seconds until the next request, or None after the last one."""
        now = self.clock()
        if not self.names or now - self.last_look > PAGE_FEED_TIMEOUT:
            self.is_closed = True
            return None
        is_viewed = now - self.last_look <= PAGE_IDLE_TIMEOUT
        pause = PAGE_POLL_INTERVAL if is_viewed else PAGE_IDLE_INTERVAL
        name = self.names[self.hub]
        try:
            reply = self.read(name, is_viewed)
        except NodeCallError as error:
            return self.note_error(name, error, pause)
        if not is_news(reply):
            return self.note_error(name, NodeCallError(f"{name} sent an invalid reply"), pause)
        self.last_reply = self.clock()
        self.cursors, self.sample_cursor = reply["cursors"], reply["sample_cursor"]
        self.view.connection = {"node": name, "state": "connected", "text": ""}
        self.note_members(reply["status"].get("nodes") or [])
        self.view.take(reply)
        hub = reply["status"].get("hub") or 0
        if self.hub < hub < len(self.names):
            self.follow(hub)
            return 0.0
        if reply["active"]:
            is_streaming = self.stream is not None
            return 0.0 if is_streaming or any(len(text) > 200_000 for text in reply["outputs"].values()) else pause
        return self.after_end(reply, pause)

    def read(self, name: str, is_viewed: bool) -> dict[str, Any]:
        """Return the next update: from the node's stream, otherwise from the reply to a request."""
        if not is_viewed:
            self.end_stream()
        elif self.stream is None and self.open_stream is not None and self.clock() >= self.stream_due:
            self.stream = self.open_stream(name, self.request("page"))
            self.stream_due = self.clock() + PAGE_IDLE_INTERVAL
        stream = self.stream
        reply = stream.next(2 * PAGE_STREAM_SILENCE) if stream is not None else None
        if reply is not None and not reply.get("error"):
            return reply
        self.end_stream()
        return self.call(name, self.request("page"), PAGE_CALL_TIMEOUT)

    def end_stream(self) -> None:
        """Close the stream, if there is one."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()

    def note_members(self, nodes: list[dict[str, Any]]) -> None:
        """Read the plan again if a node has joined the run: the record, not a node, determines which nodes to query."""
        if any(node["name"] not in self.names for node in nodes):
            self.view.take_plan(self.read_plan())
            self.names = [node["name"] for node in self.view.nodes]

    def after_end(self, reply: Mapping[str, Any], pause: float) -> float | None:
        """Return the pause after a reply saying that this node no longer leads the run, or None if the run has
        ended.
        """
        is_over = bool(self.view.result) and not self.view.result.get("cut_off")
        if is_over:
            return None
        if self.find_successor():
            return 0.0
        text = f"the supervisor on {self.names[self.hub]} has ended ({reply['status']['state']})"
        self.view.connection = {"node": self.names[self.hub], "state": "lost", "text": text}
        return max(pause, PAGE_IDLE_INTERVAL)

    def note_error(self, name: str, error: NodeCallError, pause: float) -> float | None:
        """Note why a node did not reply, and query the others if it has been silent for a long time; return the
        pause.
        """
        silent = self.clock() - self.last_reply
        text = clean_text(str(error), 500)
        self.view.connection = {"node": name, "state": "lost" if error.is_final else "retrying", "text": text}
        if self.view.result:  # the record says how the run ended
            return None
        if (error.is_final or silent > PAGE_LOST_TIMEOUT) and self.find_successor():
            return 0.0
        return PAGE_IDLE_INTERVAL if error.is_final else pause

    def request(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Build a request about the run."""
        return {
            "operation": operation,
            "run_id": self.view.run_id,
            "local_rank": 0,
            "attempt": self.attempt,
            "cursors": self.cursors,
            "sample_cursor": self.sample_cursor,
            "wait": 0,
            **fields,
        }

    def follow(self, hub: int) -> None:
        """Read the run from another node, which leads it now."""
        self.end_stream()
        self.stream_due = 0.0
        self.hub = hub
        self.attempt = to_int(self.view.status.get("attempt"), 1000) + 1
        self.cursors, self.sample_cursor = {}, [0, 0, 0]
        self.last_reply = self.clock()

    def find_successor(self) -> bool:
        """Ask all other nodes which node leads the run; return whether the leader has changed."""
        others = [name for name in self.names if name != self.names[self.hub]]
        replies = self.call_all(others, self.request("read", hub=self.hub), PAGE_CALL_TIMEOUT)
        hubs = [
            to_int(reply["run"].get("hub"))
            for reply in replies.values()
            if conforms(reply.get("run"), READ) and reply["run"]["run_id"] == self.view.run_id
        ]
        hub = max((hub for hub in hubs if hub < len(self.names)), default=0)
        if hub <= self.hub:
            return False
        self.follow(hub)
        return True

    def call_all(self, names: list[str], request: Mapping[str, Any], timeout: float) -> dict[str, dict[str, Any]]:
        """Return the replies of several nodes by name; nodes that send none are omitted."""

        def ask(name: str) -> dict[str, Any]:
            try:
                return self.call(name, request, timeout)
            except NodeCallError:
                return {}

        with ThreadPoolExecutor(PARALLEL_CALLS) as calls:
            replies = dict(zip(names, calls.map(ask, names), strict=True))
        return {name: reply for name, reply in replies.items() if reply}

    # - output

    def output(self, rank: int, after: int) -> dict[str, Any]:
        """Return a rank's latest lines, starting at a line number. Raise LookupError if the rank is unknown."""
        if rank == 0:
            return {**self.view.output_after(after), "error": ""}
        nodes = [node for node in self.view.nodes if node["first_rank"] <= rank < node["first_rank"] + node["slots"]]
        if not nodes:
            raise LookupError(f"run {self.view.run_id} has no rank {rank}")
        rank_output = self.rank_output(rank)
        with rank_output.lock:
            if self.clock() - rank_output.read >= PAGE_POLL_INTERVAL or not rank_output.read:
                self.read_output(rank_output, nodes[0]["name"], rank - nodes[0]["first_rank"])
            return {**rank_output.tail.after(after), "error": rank_output.error}

    def rank_output(self, rank: int) -> RankOutput:
        """Return the output of a rank; drop the least recently used output if there are too many."""
        with self.view.lock:
            if rank not in self.outputs and len(self.outputs) >= MAX_TAILS:
                del self.outputs[min(self.outputs, key=lambda number: self.outputs[number].read)]
            return self.outputs.setdefault(rank, RankOutput())

    def read_output(self, rank_output: RankOutput, name: str, local_rank: int) -> None:
        """Request the output of a rank from its node."""
        rank_output.read = self.clock()
        request = self.request("watch", local_rank=local_rank, cursors=rank_output.cursors, attempt=0)
        try:
            reply = self.call(name, request, PAGE_CALL_TIMEOUT)
        except NodeCallError as error:
            rank_output.error = clean_text(str(error), 500)
            return
        if not is_output_news(reply):
            rank_output.error = f"{name} sent an invalid reply"
            return
        rank_output.error, rank_output.cursors = "", reply["cursors"]
        rank_output.tail.take(reply)

    def search(self, text: str) -> dict[str, Any]:
        """Return the lines of all ranks that contain a text, by rank, and the nodes that did not reply."""
        replies = self.call_all(self.names, self.request("search", text=text, cursors={}), PAGE_SEARCH_TIMEOUT)
        matches = [
            {
                "rank": to_int(match.get("rank")),
                "node": name,
                "log": clean_text(match.get("log"), 300),
                "line": clean_text(match.get("line"), 500),
            }
            for name, reply in replies.items()
            for match in to_mappings(reply.get("matches"), MAX_MATCHES)
        ]
        matches.sort(key=lambda match: match["rank"])  # type: ignore[arg-type,return-value]
        return {
            "matches": matches[:MAX_MATCHES],
            "shortened": len(matches) > MAX_MATCHES,
            "missing": [name for name in self.names if name not in replies],
        }
