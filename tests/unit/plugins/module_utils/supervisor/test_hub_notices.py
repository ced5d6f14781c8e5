"""The notice in effect, and the times at which limits are due, with a simulated clock."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import (
    HubNotices,
    format_seconds,
    validate_notice,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.limits import (
    format_limit,
    hourly_price,
)

HOUR = 3600.0


def make(price: float | None = 3.0, **settings: float) -> HubNotices:
    plan: Any = {
        "nodes": [{"name": name, "price_per_hour": price} for name in ("a", "b")],
        "currency": "EUR",
        "timeouts": {"grace": 5},
        "notices": {"grace": 100, **settings},
    }
    notices = HubNotices(plan)
    notices.started = 1000.0
    return notices


def notice(ends: bool = True, seconds: float = 0.0) -> Any:
    return validate_notice({"source": "request", "text": "now", "ends": ends, "seconds": seconds}, "a")


def test_time_limit_warns_once_and_reserves_the_grace_period_for_saving() -> None:
    notices = make(time_limit=HOUR)
    assert notices.warnings(1000 + 0.79 * HOUR) == []
    warning = "80% of launch_time_limit (1 h) has been used; the run will save and end in 10 min"
    assert notices.warnings(1000 + 0.8 * HOUR) == [warning.replace("10 min", "10 min")]
    assert notices.warnings(1000 + 0.9 * HOUR) == []
    assert notices.due(1000 + HOUR - 101) == []
    (due_notice,) = notices.due(1000 + HOUR - 100)
    assert (due_notice["source"], due_notice["ends"], due_notice["seconds"]) == ("launch_time_limit", True, 100.0)
    assert notices.due(1000 + HOUR) == [], "once"
    assert notices.accept(due_notice, 1000 + HOUR - 100)
    assert notices.deadline == 1000 + HOUR - 5, "SIGTERM and the stop grace end the run at the limit"


def test_cost_limit_counts_all_nodes() -> None:
    notices = make(cost_limit=12.0)  # 6 an hour: 2 hours
    assert notices.due(1000 + 2 * HOUR - 101) == []
    (due_notice,) = notices.due(1000 + 2 * HOUR - 100)
    assert due_notice["text"] == "launch_cost_limit (12 EUR) has been reached"


def test_grace_period_does_not_use_up_a_short_limit() -> None:
    notices = make(time_limit=60)
    assert notices.due(1000 + 53.9) == []
    assert len(notices.due(1000 + 54.1)) == 1


def test_unknown_price_means_no_cost_limit() -> None:
    assert make(price=None, cost_limit=1.0).limits == []
    assert hourly_price({"nodes": [{"price_per_hour": 1.0}, {}]}) is None


def test_limits_do_not_count_before_the_start() -> None:
    notices = make(time_limit=60)
    notices.started = None
    assert (notices.due(10**6), notices.warnings(10**6)) == ([], [])


def test_hang_is_counted_from_its_start_and_ends_the_run_once() -> None:
    notices = make(stall_limit=1800)
    assert notices.due(9000) == []
    notices.hang_since = 8000.0
    assert notices.due(9799) == []
    (due_notice,) = notices.due(9800)
    assert due_notice["text"] == "the run has hung for 30 min (launch_stall_limit)"
    assert notices.due(9900) == []


def test_hang_that_resolves_does_not_end_the_run() -> None:
    notices = make(stall_limit=1800)
    notices.hang_since = 8000.0
    notices.hang_since = None
    assert notices.due(99999) == []


def test_notice_during_a_save_only_shortens_the_time_to_save() -> None:
    notices = make()
    assert notices.accept(notice(ends=False), 10)
    assert (notices.ends_run, notices.number) == (False, 1)
    assert notices.accept(notice(), 20), "an end follows a save that lets the run continue"
    assert (notices.deadline, notices.number) == (120, 2)
    assert not notices.accept(notice(seconds=30), 30)
    assert notices.deadline == 55
    assert not notices.accept(notice(), 40)
    assert not notices.accept(notice(ends=False), 41)
    assert (notices.deadline, notices.number) == (55, 2)
    assert notices.is_saving(54) and not notices.is_late(54)
    assert notices.is_late(55) and not notices.is_saving(55)


@pytest.mark.parametrize("seconds", [None, "30", float("nan"), float("inf"), -1, True, [1], 10**9])
def test_time_in_another_nodes_notice_is_validated(seconds: Any) -> None:
    checked = validate_notice({"text": "x\n" * 9999, "ends": "yes", "seconds": seconds, "source": []}, "b")
    assert (checked["seconds"], checked["ends"], checked["node"]) == (0.0, False, "b")
    assert len(checked["text"]) == 500 and "\n" not in checked["text"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(25.0, "25 s"), (600, "10 min"), (3600, "1 h"), (5400, "90 min"), (43200, "12 h")]
)
def test_time_limits_are_readable(seconds: float, text: str) -> None:
    assert format_limit(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
