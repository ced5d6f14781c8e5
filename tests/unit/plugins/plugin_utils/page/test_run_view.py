# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's view of a run, from records and from the replies of untrusted nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._page import job_metrics, output_tail
from ansible_collections.muster.training.plugins.plugin_utils._page.job_metrics import JobMetrics
from ansible_collections.muster.training.plugins.plugin_utils._page.output_tail import OutputTail
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import (
    MAX_EVENTS,
    RunView,
    is_news,
    is_output_news,
)
from tests.unit.plugins.plugin_utils.page.page_data import (
    SECRET,
    START,
    make_plan,
    make_reply,
    make_result,
    make_sample,
)

HOUR = 3600.0


@pytest.fixture
def view() -> RunView:
    return RunView("first", make_plan())


def test_the_state_of_a_run_has_its_nodes_time_and_cost(view: RunView) -> None:
    view.take(make_reply(samples=[make_sample("gpu1", 1)]))
    state = view.snapshot(0, now=START + HOUR)
    assert (state["state"], state["active"], state["seconds"]) == ("running", True, HOUR)
    assert state["job"] == "train.py --epochs 3"
    assert state["cost"] == "7.20 USD, 7.20 USD an hour"
    assert [(node["name"], node["ranks"], node["state"]) for node in state["nodes"]] == [
        ("gpu0", "0-1", "running"),
        ("gpu1", "2-3", "running"),
    ]
    assert state["nodes"][1]["utilization"] == 90.0 and "utilization" not in state["nodes"][0]


def test_the_cost_is_unknown_without_all_prices() -> None:
    plan = make_plan(price=None)
    assert RunView("first", plan, make_result(plan)).snapshot(0)["cost"] == ""
    plan["nodes"][0]["price_per_hour"] = "much"
    assert RunView("first", plan, make_result(plan)).snapshot(0)["cost"] == ""


def test_events_are_sent_once_and_their_number_is_limited(view: RunView) -> None:
    events = [{"time": START, "event": "go", "text": f"event {number}"} for number in range(MAX_EVENTS + 10)]
    view.take(make_reply(events=events))
    first = view.snapshot(0)
    assert len(first["events"]) == MAX_EVENTS and first["events"][-1]["text"] == f"event {MAX_EVENTS + 9}"
    view.take(make_reply(events=[{"text": "new"}]))
    second = view.snapshot(first["last_event"])
    assert [(event["text"], event["time"]) for event in second["events"]] == [("new", None)]


def test_a_successor_repeats_events_only_for_a_page_that_has_none(view: RunView) -> None:
    inherited = {"text": "the run has started", "replicated": True}
    view.take(make_reply(events=[inherited]))
    view.take(make_reply(events=[inherited, {"text": "gpu1 leads the run"}]))
    assert [event["text"] for event in view.snapshot(0)["events"]] == ["the run has started", "gpu1 leads the run"]


def test_findings_are_the_hang_and_the_current_node_problems(view: RunView) -> None:
    hang = {"text": "3 of 4 ranks wait", "awaited_ranks": [3], "since": START}
    status = {"hang": hang, "slow": ["GPU 1 of gpu0 runs at 900 MHz"], "exited": "rank 2 exited with code 0"}
    problem = {"event": "health", "text": "gpu1: GPU 0 is hot"}
    view.take(make_reply(status=status, events=[problem, {"event": "broken", "text": "gpu1: Xid 79"}]))
    assert [finding["kind"] for finding in view.snapshot(0)["findings"]] == ["hang", "exited", *["health"] * 3]
    view.take(make_reply(events=[{"event": "healthy", "text": "gpu1: no longer the case: GPU 0 is hot"}]))
    assert view.snapshot(0)["findings"] == [{"kind": "health", "text": "gpu1: Xid 79"}]


def test_metrics_and_reports_become_curves_and_reports_are_not_output(view: RunView) -> None:
    lines = [f"step {step}: loss {1 / (step + 1)}" for step in range(5)]
    reports = ["MUSTER_RESULT " + json.dumps({"step": step, "accuracy": step / 10}) for step in range(3)]
    view.take(make_reply(outputs={"/x/stdout.log": "\n".join([*lines, *reports]) + "\n"}))
    curves = {curve["name"]: curve for curve in view.curves("")["metrics"]}
    assert curves["loss"]["last"] == 0.2 and curves["loss"]["step"] == 4
    assert curves["accuracy"]["last"] == 0.2 and curves["accuracy"]["step"] == 2
    assert view.output_after(0)["lines"] == lines
    assert {metric["name"] for metric in view.snapshot(0)["metrics"]} == {"loss", "accuracy"}


def test_metrics_of_a_long_run_keep_their_last_point_and_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "MAX_POINTS", 1000)
    metrics = JobMetrics()
    for step in range(20_000):
        metrics.feed(f"step {step}: loss {step}.0")
    (curve,) = metrics.curves()
    assert metrics.printed.points <= 1001 and curve["last"] == curve["step"] == 19_999
    assert curve["points"][0][0] < 200 and len(curve["points"]) > 100


def test_non_finite_values_keep_the_json_valid(view: RunView) -> None:
    text = 'step 0: loss 1.0\nstep 1: loss nan\nMUSTER_RESULT {"a": NaN}\nMUSTER_RESULT {"a": 1e999}\n'
    view.take(make_reply(outputs={"/x": text}))
    json.dumps([view.snapshot(0), view.curves("")], allow_nan=False)


def test_an_ended_run_shows_its_record() -> None:
    plan = make_plan()
    state = RunView("first", plan, make_result(plan)).snapshot(0)
    assert (state["state"], state["active"], state["seconds"]) == ("succeeded", False, HOUR)
    assert state["message"] == "all ranks have succeeded"
    assert [node["state"] for node in state["nodes"]] == ["ended", "ended"]


HOSTILE: list[dict[str, Any]] = [
    {"status": {"nodes": [{"name": SECRET}]}},
    {"status": {"state": SECRET}},
    {"status": {"hub": -1}},
    {"status": {"attempt": 10**9}},
    {"outputs": {"/x": 5}},
    {"left_out": {"/x": "many"}},
    {"events": [5]},
    {"events": [{"text": None}]},
    {"sample_cursor": [1]},
    {"sample_cursor": [1, 2, "3"]},
    {"cursors": []},
    {"seconds_since_output": float("nan")},
    {"samples": {}},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=str)
def test_invalid_replies_are_refused(fields: dict[str, Any]) -> None:
    assert is_news(make_reply()) and not is_news(make_reply(**json.loads(json.dumps(fields))))


@pytest.mark.parametrize("reply", [None, [], {}, {"outputs": {}}, make_reply(unfinished=None)], ids=str)
def test_invalid_output_is_refused(reply: Any) -> None:
    assert is_output_news(make_reply()) and not is_output_news(reply)


def test_hostile_values_in_valid_replies_are_harmless(view: RunView) -> None:
    status = {"hang": {"text": SECRET, "awaited_ranks": SECRET}, "slow": {"a": 1}, "message": SECRET, "exited": SECRET}
    events = [{"text": SECRET * 1000, "event": [], "time": "now"}, {"text": SECRET, "event": "health", "time": 1e300}]
    view.take(make_reply(status=status, events=events, samples=[5, {"node": "gpu0"}], unfinished=SECRET * 10_000))
    text = json.dumps(view.snapshot(0))
    assert "\\u001b" not in text and len(text) < 20_000
    assert view.snapshot(0)["events"][0]["time"] is None


@pytest.mark.parametrize("plan", [{}, {"nodes": 5}, {"nodes": [5, {"name": [], "slots": "x"}]}, {"arguments": {}}])
def test_damaged_records_are_harmless(plan: dict[str, Any]) -> None:
    json.dumps(RunView("first", plan, {"state": [], "nodes": 7, "started": "x"}).snapshot(0))


def test_output_is_limited_and_reports_omissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_tail, "MAX_LINES", 10)
    tail = OutputTail()
    tail.add([str(number) for number in range(25)])
    assert tail.after(0) == {
        "from": 15,
        "next": 25,
        "missed": True,
        "lines": [str(number) for number in range(15, 25)],
        "unfinished": "",
    }
    assert tail.after(24)["lines"] == ["24"] and tail.after(10**9)["lines"] == []
    tail.add(["x" * output_tail.MAX_CHARACTERS] * 3)
    assert len(tail.lines) == 1


def test_output_is_shown_as_a_terminal_shows_it() -> None:
    tail = OutputTail()
    tail.take(
        {"left_out": {"/x": 5e6}, "outputs": {"/x": "10%\r20%\r\n\x1b[31mred\x1b[0m\n\nend"}, "unfinished": "3%\r4%"}
    )
    assert tail.after(0)["lines"] == ["[5 MB of output skipped; full log: /x]", "20%", "red", "", "end"]
    assert tail.after(0)["unfinished"] == "4%"
