# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cost of a run, calculated from the hourly prices of its machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

CURRENCY = "USD"


def read_price(name: str, value: object) -> float | None:
    """Return a node's price per hour, or None if it is not set. Raise ValueError if it is not a valid price.

    Args:
        name: the node's name.
        value: its host variable node_price_per_hour, possibly a number as text.
    """
    if value is None or value == "":
        return None
    try:
        price = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        price = math.nan
    if not 0 <= price < math.inf:
        raise ValueError(
            f"node_price_per_hour for {name} is {ascii(value)[:60]}; set it to the machine's price per hour, such "
            "as 2.49 (in launch_currency)"
        )
    return price


def read_prices(values: Mapping[str, object]) -> dict[str, float | None]:
    """Return the prices of nodes by name. Raise ValueError with one line for each value that is not a valid price."""
    prices: dict[str, float | None] = {}
    problems = []
    for name, price in values.items():
        try:
            prices[name] = read_price(name, price)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return prices


def total_price(prices: Iterable[float | None]) -> float | None:
    """Return the total price of several nodes per hour, or None if any price is unknown."""
    hourly_prices = list(prices)
    return (
        sum(price for price in hourly_prices if price is not None)
        if hourly_prices and None not in hourly_prices
        else None
    )


def run_cost(plan: Mapping[str, Any], started: float | None, ended: float) -> float | None:
    """Return the cost of a run in its plan's currency, or None if it is unknown.

    started, ended: seconds since 1970.
    """
    rate = total_price(node.get("price_per_hour") for node in plan.get("nodes", ()))
    return rate * max(0.0, ended - started) / 3600 if rate is not None and started is not None else None


def format_running_cost(plan: Mapping[str, Any], started: object, now: float) -> str:
    """Format a running run's hourly cost and its cost so far, or return "" if unknown. Times are as in run_cost()."""
    rate = total_price(node.get("price_per_hour") for node in plan.get("nodes", ()))
    if rate is None or not isinstance(started, (int, float)):
        return ""
    spent = run_cost(plan, float(started), now) or 0.0
    currency = plan.get("currency", CURRENCY)
    return f"costs {format_amount(rate, currency)} an hour, {format_amount(spent, currency)} so far"


def format_amount(amount: float, currency: str) -> str:
    """Format an amount: two decimals, or two significant digits below a tenth."""
    return f"{amount:.2f} {currency}" if amount >= 0.1 or amount == 0 else f"{amount:.2g} {currency}"
