# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cost of a run, based on the price of each node."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import MAX_NUMBER
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Cost, GpuNumbers, NodeRow
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

HOUR = 3600.0
MAX_NAMES = 5


def cost_of(  # noqa: PLR0913
    nodes: Sequence[NodeRow],
    gpus: Sequence[GpuNumbers],
    seconds: float | None,
    start_up: float | None,
    samples: float | None,
    rate: float | None,
    currency: str,
) -> Cost:
    """Return the cost of a run, of its startup, of idle GPUs, and of 1000 samples.

    The cost of idle GPUs is a node's cost times the mean idle share of its GPUs, and 0 for nodes without GPUs or
    samples.

    Args:
        nodes: The nodes, with their prices.
        gpus: The figures of their GPUs.
        seconds: Duration of the run.
        start_up: Seconds until a GPU was busy.
        samples: Samples of the whole job, as it reported. If unknown, 1000 samples are priced at `rate`, which leaves
            out the start.
        rate: Samples per second.
        currency: The currency of the prices.
    """
    unpriced = [row["name"] for row in nodes if row["price_per_hour"] is None]
    prices = {row["name"]: row["price_per_hour"] or 0.0 for row in nodes}
    if unpriced or not nodes:
        return {
            "currency": currency,
            "per_hour": None,
            "run": None,
            "start_up": None,
            "idle_gpus": None,
            "per_1000_samples": None,
            "missing": (
                f"the price of {format_list(unpriced, MAX_NAMES)} is unknown: set node_price_per_hour in the "
                "inventory to the machine's price while it is on"
            )
            if unpriced
            else "the nodes of the run are unknown",
        }
    per_hour = sum(prices.values())
    run = None if seconds is None else per_hour * seconds / HOUR
    idle: float | None = None
    for name, price in prices.items():
        shares = [gpu["idle_share"] for gpu in gpus if gpu["node"] == name and gpu["idle_share"] is not None]
        if shares and seconds is not None:
            idle = (idle or 0.0) + price * seconds / HOUR * statistics.fmean(shares)
    per_1000: float | None = None
    if run is not None and samples is not None and samples >= 1:
        per_1000 = 1000 * run / samples
    elif run is not None and rate is not None and rate > 0:
        per_1000 = 1000 / rate * per_hour / HOUR
    return {
        "currency": currency,
        "per_hour": per_hour,
        "run": run,
        "start_up": None if start_up is None or seconds is None else per_hour * min(start_up, seconds) / HOUR,
        "idle_gpus": idle,
        "per_1000_samples": per_1000 if per_1000 is not None and per_1000 <= MAX_NUMBER else None,
        "missing": "" if seconds is not None else "the start time of the run is unknown",
    }
