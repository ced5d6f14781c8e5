"""The cost of a run."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import (
    format_amount,
    format_running_cost,
    read_price,
    read_prices,
    run_cost,
    total_price,
)


@pytest.mark.parametrize(
    ("setting", "price"), [(2.49, 2.49), (3, 3.0), ("2.49", 2.49), (0, 0.0), (None, None), ("", None)]
)
def test_a_price_is_a_number(setting: object, price: float | None) -> None:
    assert read_price("gpu1", setting) == price


@pytest.mark.parametrize("setting", [-1, True, "2,49", "2.49 USD", "nan", "inf", [2], {"usd": 2}])
def test_invalid_price_is_refused(setting: object) -> None:
    with pytest.raises(
        ValueError, match=r"node_price_per_hour for gpu1 is .*; set it to the machine's price per hour, such as 2.49"
    ):
        read_price("gpu1", setting)


def test_all_invalid_prices_are_reported_at_once() -> None:
    assert read_prices({"a": 1, "b": None}) == {"a": 1.0, "b": None}
    with pytest.raises(ValueError, match="for b is .*\n.*for c is"):
        read_prices({"a": 1, "b": "x", "c": "y"})


def test_total_is_unknown_if_a_price_is_missing() -> None:
    assert total_price([2.5, 5.06]) == pytest.approx(7.56)
    assert total_price([2.5, None]) is None and total_price([]) is None
    assert total_price([0.0, 0.0]) == 0.0


def plan(*prices: Any) -> dict[str, Any]:
    return {"nodes": [{"name": "n", "price_per_hour": price} for price in prices]}


def test_cost_is_duration_times_total_price_of_all_nodes() -> None:
    assert run_cost(plan(3.6, 7.2), 1000.0, 1100.0) == pytest.approx(0.3)
    assert run_cost(plan(3.6), 1000.0, 900.0) == 0.0, "clocks are set"
    for unknown in (plan(3.6, None), plan(), {}, {"nodes": [{"name": "of a former version"}]}):
        assert run_cost(unknown, 1000.0, 1100.0) is None
    assert run_cost(plan(3.6), None, 1100.0) is None


def test_running_cost_shows_hourly_rate_and_amount_so_far() -> None:
    assert (
        format_running_cost({**plan(3.6, 7.2), "currency": "EUR"}, 1000, 1100.0)
        == "costs 10.80 EUR an hour, 0.30 EUR so far"
    )
    for unknown in (
        format_running_cost(plan(3.6, None), 1000.0, 1100.0),
        format_running_cost(plan(3.6), None, 1100.0),
        format_running_cost({}, 1.0, 2.0),
    ):
        assert unknown == ""


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(7.556, "7.56 USD"), (0.42, "0.42 USD"), (0.0, "0.00 USD"), (0.01234, "0.012 USD"), (1234.5, "1234.50 USD")],
)
def test_money_is_rounded_and_shown_with_currency(amount: float, expected: str) -> None:
    assert format_amount(amount, "USD") == expected
