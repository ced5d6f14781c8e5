# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prices of machines and disks, with the source and date of each number. Unknown prices are None."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Price(NamedTuple):
    """A price in US dollars per hour or month, and the source of the number."""

    usd: float
    source: str
    date: str


class CloudPrices(NamedTuple):
    """A provider's prices."""

    machine: Callable[[str], Price | None]  # hourly price by machine type
    disk: Callable[[int | None], Price | None]  # monthly price by size in GB
    page: str  # page on which a person can look up the prices
    reported_source: str  # source of the prices that the machines themselves report
