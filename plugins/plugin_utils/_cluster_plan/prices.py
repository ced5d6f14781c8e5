# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines and disks cost, with the source and the date of each number. Private to this collection.

Paperspace's API has no prices before a machine is made; afterwards each machine says what it costs an hour, and
that is what counts. What no source says is None, and is called unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SOURCE = "Paperspace's console"
DATE = "2025-12-28"
PAGE = "https://www.paperspace.com/pricing"
HOURS_A_MONTH = 730.0
#: Of the price that the table says: a machine that costs more or less than this is spoken of.
TOLERANCE = 0.02


class Price(NamedTuple):
    """US dollars, for an hour or a month, and where the number is from."""

    usd: float
    source: str
    date: str


class Prices(NamedTuple):
    """Where a cloud's prices are from: of a machine an hour by its type, of its disk a month by GB.

    page: where a person looks them up. said: source of what the machines themselves are known to cost.
    """

    machine: Callable[[str], Price | None]
    disk: Callable[[int | None], Price | None]
    page: str
    said: str


# US dollars an hour of one machine with N GPUs: the table of the console of 2025-12-28. The single-GPU rows are those
# of the documentation's page of machine types of 2025-06-17 as well.
_PER_HOUR: dict[str, float] = {
    "C1": 0.0045,
    "C2": 0.009,
    "C3": 0.018,
    "C4": 0.04,
    "C5": 0.08,
    "C6": 0.16,
    "C7": 0.30,
    "C8": 0.60,
    "C9": 0.90,
    "C10": 1.60,
    "GPU+": 0.45,
    "GPU+x2": 0.90,
    "GPU+x4": 1.80,
    "P4000": 0.51,
    "P4000x2": 1.02,
    "P4000x4": 2.04,
    "P5000": 0.78,
    "P5000x2": 1.56,
    "P5000x4": 3.12,
    "P6000": 1.10,
    "P6000x2": 2.20,
    "P6000x4": 4.40,
    "RTX4000": 0.56,
    "RTX4000x2": 1.12,
    "RTX4000x4": 2.24,
    "RTX5000": 0.82,
    "RTX5000x2": 1.64,
    "RTX5000x4": 3.28,
    "V100": 2.30,
    "V100x2": 4.60,
    "V100x4": 9.20,
    "V100-32G": 2.30,
    "V100-32Gx2": 4.60,
    "V100-32Gx4": 9.20,
    "A4000": 0.76,
    "A4000x2": 1.52,
    "A4000x4": 3.04,
    "A5000": 1.38,
    "A5000x2": 2.76,
    "A5000x4": 5.52,
    "A6000": 1.89,
    "A6000x2": 3.78,
    "A6000x4": 7.56,
    "A100": 3.09,
    "A100x2": 6.18,
    "A100x4": 12.36,
    "A100x8": 24.72,
    "A100-80G": 3.18,
    "A100-80Gx2": 6.36,
    "A100-80Gx4": 12.72,
    "A100-80Gx8": 25.44,
    "H100": 5.95,
    "H100x2": 17.92,
    "H100x4": 35.84,
    "H100x8": 47.60,
}

# US dollars a month of a machine's disk, by its size in GB; a stopped machine costs this alone.
_DISK_PER_MONTH: dict[int, Price] = {
    50: Price(5.0, "Paperspace's help page 360057895553", "undated"),
    100: Price(7.0, "cloudypad's documentation of costs", "2024-09"),
    250: Price(10.0, "cloudypad's documentation of costs", "2024-09"),
}


# US dollars a month of a template, by the size in GB of the disk that it was made of, as long as it is kept.
_TEMPLATE_PER_MONTH = {50: 3.5, 100: 6.0, 250: 11.0, 500: 17.0, 1000: 24.0, 2000: 42.0}


def template_price(size_gb: int | None) -> Price | None:
    """What a template of Paperspace's costs a month."""
    usd = None if size_gb is None else _TEMPLATE_PER_MONTH.get(size_gb)
    return None if usd is None else Price(usd, "Paperspace's page of custom templates", "2023")


def machine_price(machine_type: str) -> Price | None:
    """What a machine of a type of Paperspace's costs an hour while it is on."""
    usd = _PER_HOUR.get(machine_type)
    return None if usd is None else Price(usd, SOURCE, DATE)


def disk_price(size_gb: int | None) -> Price | None:
    """What a machine's disk costs a month, also while the machine is off."""
    return None if size_gb is None else _DISK_PER_MONTH.get(size_gb)


def known_types() -> list[str]:
    """Types of machine that the table has."""
    return list(_PER_HOUR)


PAPERSPACE = Prices(machine_price, disk_price, PAGE, "what the machines themselves say")
