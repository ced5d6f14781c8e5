# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prices of machines and disks on Paperspace, with the source and date of each number.

Paperspace's API reports no prices before a machine is created; afterwards each machine reports its price per hour,
which takes precedence. A price without a source is None, shown as unknown.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices, Price

SOURCE = "Paperspace's console"
DATE = "2025-12-28"
PAGE = "https://www.paperspace.com/pricing"


# US dollars per hour for one machine with N GPUs, from the console's table of 2025-12-28. The single-GPU rows are also
# on the documentation page about machine types of 2025-06-17.
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

# US dollars per month for a machine's disk, by size in GB; this is all that a stopped machine costs.
_DISK_PER_MONTH: dict[int, Price] = {
    50: Price(5.0, "Paperspace's help page 360057895553", "undated"),
    100: Price(7.0, "cloudypad's cost documentation", "2024-09"),
    250: Price(10.0, "cloudypad's cost documentation", "2024-09"),
}


# US dollars per month for keeping a template, by the size in GB of the disk it was created from.
_TEMPLATE_PER_MONTH = {50: 3.5, 100: 6.0, 250: 11.0, 500: 17.0, 1000: 24.0, 2000: 42.0}


def template_price(size_gb: int | None) -> Price | None:
    """Return the monthly price of a Paperspace template."""
    usd = None if size_gb is None else _TEMPLATE_PER_MONTH.get(size_gb)
    return None if usd is None else Price(usd, "Paperspace's page about custom templates", "2023")


def machine_price(machine_type: str) -> Price | None:
    """Return the hourly price of a Paperspace machine type while a machine is on."""
    usd = _PER_HOUR.get(machine_type)
    return None if usd is None else Price(usd, SOURCE, DATE)


def disk_price(size_gb: int | None) -> Price | None:
    """Return the monthly price of a machine's disk, which is also billed while the machine is off."""
    return None if size_gb is None else _DISK_PER_MONTH.get(size_gb)


PAPERSPACE = CloudPrices(machine_price, disk_price, PAGE, "reported by the machines")
