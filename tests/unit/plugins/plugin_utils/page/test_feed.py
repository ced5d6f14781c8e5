# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The feed of a run: from the leading node, from its successor, and the output of other ranks on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PAGE_FEED_TIMEOUT,
    PAGE_IDLE_INTERVAL,
    PAGE_IDLE_TIMEOUT,
    PAGE_LOST_TIMEOUT,
    PAGE_POLL_INTERVAL,
)
from ansible_collections.muster.training.plugins.plugin_utils._page.feed import NodeCallError, RunFeed
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import RunView
from tests.unit.plugins.plugin_utils.page.page_data import SECRET, make_plan, make_reply, make_result, make_sample


class Nodes:
    """Nodes with scripted replies: a value, an error, or a function of the request."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.requests: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, name: str, request: Mapping[str, Any], _timeout: float) -> dict[str, Any]:
        self.requests.append((name, dict(request)))
        reply = self.replies[name]
        reply = reply(request) if callable(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        result: dict[str, Any] = reply
        return result

    def queries(self) -> list[tuple[str, str]]:
        """Return the nodes queried since the last call, with their requests."""
        requests, self.requests = self.requests, []
        return [(name, request["operation"]) for name, request in requests]


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make_feed(nodes: Nodes, count: int = 3, result: Mapping[str, Any] | None = None) -> tuple[RunFeed, Clock]:
    clock = Clock()
    return RunFeed(RunView("first", make_plan(count), result), nodes, clock), clock


def read_reply(hub: int, state: str = "running") -> dict[str, Any]:
    run = {"run_id": "first", "state": state, "message": "", "directory": "/x", "hub": hub}
    return {"changed": False, "run": run}


def test_joining_node_replaces_the_lost_node() -> None:
    plan, record = make_plan(3), make_plan(3)
    reply = make_reply(samples=[make_sample("fresh", 1)])
    reply["status"]["nodes"] = [
        {"name": name, "node_rank": rank, "state": "running", "since": 1.0}
        for rank, name in enumerate(("gpu0", "fresh", "gpu2"))
    ]
    feed = RunFeed(RunView("first", plan), Nodes(gpu0=reply), Clock(), read_plan=lambda: record)
    feed.step()
    assert feed.names == ["gpu0", "gpu1", "gpu2"], "a name that only a node has said is not used"
    record["nodes"][1]["name"] = "fresh"
    feed.step()
    assert feed.names == ["gpu0", "fresh", "gpu2"]
    row = feed.view.snapshot(0)["nodes"][1]
    assert (row["name"], row["state"]) == ("fresh", "running") and feed.view.samples.newest["fresh"]


SILENT = NodeCallError("gpu0 has not responded: Connection timed out")


def test_only_the_leading_node_is_queried_and_continues_at_its_cursor() -> None:
    nodes = Nodes(gpu0=make_reply(samples=[make_sample("gpu2", 1)]))
    feed, _clock = make_feed(nodes)
    assert [feed.step(), feed.step()] == [PAGE_POLL_INTERVAL] * 2
    first, second = (request for _name, request in nodes.requests)
    assert (first["cursors"], first["sample_cursor"]) == ({}, [0, 0, 0])
    assert (second["cursors"], second["sample_cursor"]) == ({"/x/log": 5}, [1, 2, 3])
    assert nodes.queries() == [("gpu0", "page")] * 2
    assert feed.view.connection["state"] == "connected" and feed.view.samples.newest["gpu2"]


def test_unviewed_page_polls_less_and_then_stops() -> None:
    feed, clock = make_feed(Nodes(gpu0=make_reply()))
    clock.now += PAGE_IDLE_TIMEOUT + 1
    assert feed.step() == PAGE_IDLE_INTERVAL
    feed.look()
    assert feed.wake.is_set() and feed.step() == PAGE_POLL_INTERVAL
    clock.now += PAGE_FEED_TIMEOUT + 1
    assert feed.step() is None and feed.is_closed


def test_large_output_is_read_without_a_pause() -> None:
    feed, _clock = make_feed(Nodes(gpu0=make_reply(outputs={"/x": "line\n" * 50_000})))
    assert feed.step() == 0.0


def test_silent_node_is_queried_again_before_the_others() -> None:
    nodes = Nodes(gpu0=SILENT, gpu1=read_reply(0), gpu2=read_reply(0))
    feed, clock = make_feed(nodes)
    assert feed.step() == PAGE_POLL_INTERVAL and nodes.queries() == [("gpu0", "page")]
    assert feed.view.connection == {"node": "gpu0", "state": "retrying", "text": str(SILENT)}
    clock.now += PAGE_LOST_TIMEOUT + 1
    assert feed.step() == PAGE_POLL_INTERVAL
    assert sorted(nodes.queries()) == [("gpu0", "page"), ("gpu1", "read"), ("gpu2", "read")]
    assert feed.hub == 0


def test_the_successor_of_a_lost_node_is_followed() -> None:
    nodes = Nodes(
        gpu0=SILENT, gpu1=SILENT, gpu2=lambda request: make_reply() if request["operation"] == "page" else read_reply(2)
    )
    feed, clock = make_feed(nodes)
    feed.view.status = {"attempt": 1}
    clock.now += PAGE_LOST_TIMEOUT + 1
    assert feed.step() == 0.0
    nodes.queries()
    assert feed.step() == PAGE_POLL_INTERVAL
    ((name, request),) = nodes.requests
    assert (name, request["operation"], request["attempt"]) == ("gpu2", "page", 2)
    assert (request["cursors"], request["sample_cursor"]) == ({}, [0, 0, 0])
    assert feed.view.connection == {"node": "gpu2", "state": "connected", "text": ""}


def test_a_node_whose_supervisor_died_has_a_successor() -> None:
    died = make_reply(active=False, status={"state": "died"})
    nodes = Nodes(
        gpu0=died, gpu1=lambda request: make_reply() if request["operation"] == "page" else read_reply(1), gpu2=SILENT
    )
    feed, _clock = make_feed(nodes)
    assert feed.step() == 0.0 and feed.hub == 1


def test_returning_node_reports_the_leader_of_the_run() -> None:
    feed, _clock = make_feed(Nodes(gpu0=make_reply(status={"hub": 2})))
    assert feed.step() == 0.0 and feed.hub == 2


@pytest.mark.parametrize("hub", [-1, 0, 3, 10**9, "1", None])
def test_a_node_cannot_name_a_leader_that_does_not_exist(hub: Any) -> None:
    nodes = Nodes(gpu0=SILENT, gpu1=read_reply(hub), gpu2={"run": 5})
    feed, clock = make_feed(nodes)
    clock.now += PAGE_LOST_TIMEOUT + 1
    feed.step()
    assert feed.hub == 0


def test_reading_ends_with_the_run() -> None:
    result = make_result(make_plan(3))
    feed, _clock = make_feed(Nodes(gpu0=make_reply(active=False, result=result, status={"state": "succeeded"})))
    assert feed.step() is None and feed.view.snapshot(0)["state"] == "succeeded"
    missing = NodeCallError("gpu0: run first does not exist on this node", is_final=True)
    feed, _clock = make_feed(Nodes(gpu0=missing), result=result)
    assert feed.step() is None and feed.view.snapshot(0)["state"] == "succeeded"


def test_result_of_an_isolated_node_does_not_end_the_run() -> None:
    result = make_result(make_plan(3), state="failed", cut_off=True)
    cut_off = make_reply(active=False, result=result, status={"state": "failed"})
    feed, _clock = make_feed(Nodes(gpu0=cut_off, gpu1=read_reply(1), gpu2=SILENT))
    assert feed.step() == 0.0 and feed.hub == 1


def test_an_invalid_reply_is_an_error_of_its_node() -> None:
    feed, _clock = make_feed(Nodes(gpu0={"active": SECRET}))
    feed.step()
    assert feed.view.connection["text"] == "gpu0 sent an invalid reply"


def test_another_ranks_output_is_read_from_its_node_at_most_once_per_interval() -> None:
    nodes = Nodes(gpu1=make_reply(outputs={"/x": "hello\n"}))
    feed, clock = make_feed(nodes)
    assert feed.output(3, 0)["lines"] == ["hello"]
    assert feed.output(3, 0)["lines"] == ["hello"]
    ((name, request),) = nodes.requests
    assert (name, request["operation"], request["local_rank"]) == ("gpu1", "watch", 1)
    clock.now += PAGE_POLL_INTERVAL
    assert feed.output(3, 1)["lines"] == ["hello"]
    assert nodes.requests[-1][1]["cursors"] == {"/x/log": 5}
    with pytest.raises(LookupError):
        feed.output(6, 0)


def test_output_of_an_unresponsive_node_gives_the_reason() -> None:
    nodes = Nodes(gpu1=SILENT, gpu2={"outputs": 5})
    feed, _clock = make_feed(nodes)
    assert feed.output(2, 0)["error"] == str(SILENT)
    assert feed.output(4, 0)["error"] == "gpu2 sent an invalid reply"


def test_output_of_a_limited_number_of_ranks_is_kept() -> None:
    nodes = Nodes(**{f"gpu{number}": make_reply() for number in range(20)})
    feed, clock = make_feed(nodes, 20)
    for rank in range(1, 40):
        clock.now += 1
        feed.output(rank, 0)
    assert sorted(feed.outputs) == list(range(32, 40))


def test_search_queries_all_nodes_and_names_unresponsive_nodes() -> None:
    match = {"rank": 5, "log": "ranks/1/stderr.log", "line": SECRET}
    nodes = Nodes(gpu0={"matches": [{**match, "rank": 0}]}, gpu1=SILENT, gpu2={"matches": [match, 5, {"rank": "x"}]})
    feed, _clock = make_feed(nodes)
    reply = feed.search("error")
    assert [(line["node"], line["rank"]) for line in reply["matches"]] == [("gpu0", 0), ("gpu2", 0), ("gpu2", 5)]
    assert reply["missing"] == ["gpu1"] and not reply["shortened"]
    assert "\x1b" not in reply["matches"][-1]["line"]
