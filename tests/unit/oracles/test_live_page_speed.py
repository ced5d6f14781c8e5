# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live page in a real browser: how soon it shows a sample, what a day of a large run costs, and that it follows a
run whose first node is lost. The runs have real supervisors.
"""

from __future__ import annotations

import json
import re
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import dispatch, live_samples
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    REPLY_MARK,
    shell_command,
    standard_input,
)
from ansible_collections.muster.training.plugins.plugin_utils._page import api, feed
from ansible_collections.muster.training.plugins.plugin_utils._page.feed import NodeCallError
from ansible_collections.muster.training.plugins.plugin_utils._page.node_stream import NodeStream
from tests.support import browser
from tests.support.browser import Browser
from tests.unit import supervised
from tests.unit.oracles.test_live_page import GPUS, NODES, open_page, serving_cluster, text_of
from tests.unit.plugins.plugin_utils.page.page_data import START, make_sample, write_record
from tests.unit.plugins.plugin_utils.page.test_server import Page, serving
from tests.unit.restarting import make_restarting, power_off, wait_for_ranks
from tests.unit.supervised import Run, end_by_force, eventually, own_network

PROMISE = 1.0  # seconds from a sample in the node's file to the screen
TRIES = 20
NEVER = 600.0  # seconds; for intervals that must not matter
DAY = 86400
MAX_BYTES = 100 * 2**20
FRAME = 0.016  # seconds on the browser's main thread
UPDATES = 12
JOB = 'echo "member $1 rank $NODE_RANK of $WORLD_SIZE"; exec sleep 600'

pytestmark = pytest.mark.skipif(browser.program() is None, reason="there is no Chromium on this machine")


class LocalNodes:
    """A run's nodes on this machine, called as over ssh; lost nodes do not respond."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ranks = {plan["node"]["name"]: rank for rank, plan in enumerate(run.plans)}
        self.lost: set[str] = set()
        self.streams: list[NodeStream] = []

    def request(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if name in self.lost:
            raise NodeCallError(f"{name} has not responded: Connection timed out")
        return {**self.run.request(self.ranks[name]), **request}

    def __call__(self, name: str, request: Mapping[str, Any], _timeout: float) -> dict[str, Any]:
        reply: dict[str, Any] = dispatch.main(self.request(name, request))
        if "error" in reply:
            raise NodeCallError(reply["error"])
        return reply

    def stream(self, name: str, request: Mapping[str, Any]) -> NodeStream | None:
        if name in self.lost:
            return None
        fields = {**self.request(name, request), "mark": REPLY_MARK, "seconds": NEVER}
        command = shell_command(f"P={shlex.quote(sys.executable)}")
        stream = NodeStream(["/bin/sh", "-c", command], standard_input("_run.page_stream", fields, limit=NEVER))
        self.streams.append(stream)
        return stream


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run of three nodes that can lose the first one, and takes no samples after its first."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(41))
    run = make_restarting(tmp_path, JOB, timeouts={"sample": NEVER})
    run.start()
    wait_for_ranks(run, 0, range(3))
    yield run
    end_by_force(run)


@pytest.fixture
def page(tmp_path: Path, run: Run) -> Iterator[Page]:
    """The page of that run."""
    write_record(tmp_path / "runs", run.plans[0])
    served = Page(tmp_path / "runs")
    served.api.call = LocalNodes(run)
    with serving(served):
        yield served


def cell(window: Browser, row: int, column: int) -> str:
    text: str = window.evaluate(f"document.querySelectorAll('#nodes tr')[{row}]?.cells[{column}].innerText || ''")
    return text


def write_sample(run: Run, rank: int, number: int, utilization: float) -> float:
    """Append a sample to the file of a node that leads the run, as its supervisor does; return when."""
    sample = make_sample("node1", number, utilization, GPUS, time.time())
    assert conforms(sample, live_samples.STORED_SAMPLE)
    with (run.node(rank) / live_samples.FILE).open("a") as stream:
        stream.write(json.dumps(sample) + "\n")
    return time.monotonic()


def test_a_sample_is_visible_within_a_second(page: Page, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample does not wait for the next poll; there is none during the test."""
    monkeypatch.setattr(feed, "PAGE_POLL_INTERVAL", NEVER)
    monkeypatch.setattr(api, "PAGE_WAIT_TIMEOUT", NEVER)
    delays = []
    with Browser() as window:
        open_page(window, page.server.url(run.run_id))
        eventually(lambda: text_of(window, "#connection") == "connected to node0")
        for number in range(10, 10 + TRIES):
            written = write_sample(run, 0, number, float(number))
            eventually(lambda: cell(window, 1, 4) == f"{number} %")  # noqa: B023
            delays.append(time.monotonic() - written)
            if min(delays) <= PROMISE:
                break
    assert min(delays) <= PROMISE, delays
    nodes: Any = page.api.call
    assert len(nodes.streams) == 1, "one process on the node has sent all of it"


def test_the_page_follows_the_run_when_its_first_node_is_lost(
    page: Page, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PAGE_LOST_TIMEOUT", 0.5)
    nodes: Any = page.api.call
    with Browser() as window:
        open_page(window, page.server.url(run.run_id))
        eventually(lambda: text_of(window, "#connection") == "connected to node0")
        write_sample(run, 0, 100, 77.0)
        eventually(lambda: cell(window, 1, 4) == "77 %")
        nodes.lost.add("node0")
        power_off(run, 0)
        eventually(lambda: text_of(window, "#connection") == "connected to node1")
        eventually(lambda: "node1 will lead the run from now on" in text_of(window, "#events"))
        eventually(lambda: [cell(window, row, 2) for row in range(3)] == ["lost", "running", "running"])
        assert cell(window, 1, 4) == "77 %", "earlier samples stay"
        write_sample(run, 1, 10**6, 33.0)
        eventually(lambda: cell(window, 1, 4) == "33 %")
        eventually(lambda: "member 1 rank 0 of 2" in text_of(window, "#output"))
        assert text_of(window, "#events").count("all 3 nodes have checked in") == 1
        run.stop(1)
        eventually(lambda: text_of(window, "#state") == "stopped")


# --- A day of a large run ---------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Page]:
    """The page of a run of 64 nodes with 8 GPUs each after a day."""
    with serving_cluster(tmp_path / "runs") as served:
        view = served.api.feed("first").view
        for moment in range(0, DAY, 240):  # the width of a bucket after a day
            for number in range(NODES):
                view.samples.add(make_sample(f"gpu{number}", 0, (moment / 240 + number) % 100, GPUS, START + moment))
        yield served


def main_thread_tasks(window: Browser, work: Any) -> list[float]:
    """Return the CPU time in seconds of each task of the page's main thread during some work, the longest first."""
    session, window.session = window.session, ""
    window.call("Tracing.start", traceConfig={"includedCategories": ["toplevel", "__metadata"]})
    window.session = session
    work()
    window.session = ""
    window.call("Tracing.end")
    events: list[dict[str, Any]] = []
    while (message := window.next_message()).get("method") != "Tracing.tracingComplete":
        if message.get("method") == "Tracing.dataCollected":
            events += message["params"]["value"]
    window.session = session
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return sorted(
        (
            event["tdur"] / 1e6
            for event in events
            if re.search("RunTask", event["name"]) and (event["pid"], event["tid"]) in threads and "tdur" in event
        ),
        reverse=True,
    )


def private_bytes(window: Browser) -> int:
    """Return the memory that only the processes of the browser's pages use."""
    session, window.session = window.session, ""
    processes = window.call("SystemInfo.getProcessInfo")["processInfo"]
    window.session = session
    total = 0
    for process in processes:
        if process["type"] == "renderer":
            text = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
            total += sum(int(size) * 1024 for size in re.findall(r"^Private_\w+: +([0-9]+) kB", text, re.MULTILINE))
    return total


@pytest.mark.thorough  # the tests above, at a small size
def test_a_day_of_a_large_run_needs_little_memory_and_never_blocks_the_page(large: Page) -> None:
    cluster = large.cluster  # type: ignore[attr-defined]

    def update() -> None:
        for number in range(UPDATES):
            moment = START + DAY + 15.0 * number
            cluster.news.append(
                cluster.reply(
                    samples=[make_sample(f"gpu{rank}", 0, 50.0 + number, GPUS, moment) for rank in range(NODES)]
                )
            )
        expected = f"{49 + UPDATES} %"
        eventually(lambda: cell(window, 5, 4) == expected)
        version = json.dumps(large.api.feed("first").view.curves("")["version"])
        eventually(lambda: window.evaluate(f"page.version === {version}"))
        window.evaluate("new Promise(resolve => setTimeout(resolve, 0)).then(() => 0)")

    with Browser() as window:
        window.open()
        empty = private_bytes(window)
        open_page(window, large.server.url("first"))
        eventually(lambda: window.evaluate("document.querySelectorAll('#strips canvas').length") == 6)
        assert window.evaluate("document.querySelector('#strips canvas').width") > 300
        tasks = main_thread_tasks(window, update)
        window.call("HeapProfiler.collectGarbage")
        used = private_bytes(window) - empty
        heap = window.evaluate("performance.memory.usedJSHeapSize")
    assert len(tasks) > UPDATES
    # the longest tasks are those for the updates; the first ones also compile the page's functions
    assert statistics.median(tasks[:UPDATES]) <= FRAME, tasks[:UPDATES]
    assert used <= MAX_BYTES and heap <= MAX_BYTES, (used, heap)
