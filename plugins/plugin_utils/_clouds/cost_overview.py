# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of all clusters in an account: so far, and per hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import format_usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import AccountResources, Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    find_drives,
    find_machines,
    parse_cluster_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration


class ClusterOverview(TypedDict):
    """Summary of one cluster. Amounts are in US dollars, or None if a price is unknown."""

    cluster: str
    network: str
    region: str
    types: list[str]
    running: int
    stopped: int
    age: float | None  # seconds since its oldest machine was created; None if it has no machines
    per_hour: float | None
    # upper limit that assumes machines were always on: the API does not say how long a machine has been on
    cost_to_date: float | None
    stopped_per_month: float | None  # disks of all its machines, whether they are on or off
    other_costs: list[str]  # other resources that cost money, for which the price is unknown


def summarize_clusters(
    resources: AccountResources, now: float, prices: CloudPrices
) -> tuple[list[ClusterOverview], list[Machine]]:
    """Return the clusters, sorted by name, and the machines that are not in a cluster. now: seconds since 1970."""
    overviews: list[ClusterOverview] = []
    cluster_machine_ids: set[str] = set()
    for network in sorted(resources["networks"], key=lambda item: (item["name"], item["id"])):
        cluster = parse_cluster_name(network["name"])
        if cluster is None:
            continue
        machines = find_machines(cluster, network, resources)
        cluster_machine_ids |= {machine["id"] for machine in machines}
        running = [machine for machine in machines if machine["state"] != "off"]
        ages = [now - machine["created"] for machine in machines if machine["created"] is not None]
        besides = [f"drive {drive['name']}" for drive in find_drives(cluster, network, resources)]
        besides += [f"address {machine['public_ip']}" for machine in machines if machine["fixed_address"]]
        disks = [prices.disk(machine["disk_gb"]) for machine in machines]
        overviews.append(
            {
                "cluster": cluster,
                "network": network["id"],
                "region": network["region"],
                "types": sorted({machine["machine_type"] for machine in machines}),
                "running": len(running),
                "stopped": len(machines) - len(running),
                "age": max(ages, default=None),
                "per_hour": sum_or_none(hourly_rate(machine, prices) for machine in running),
                "cost_to_date": sum_or_none(_cost_so_far(machine, now, prices) for machine in machines),
                "stopped_per_month": sum_or_none(price.usd if price else None for price in disks),
                "other_costs": besides,
            }
        )
    return overviews, [machine for machine in resources["machines"] if machine["id"] not in cluster_machine_ids]


def hourly_rate(machine: Machine, prices: CloudPrices) -> float | None:
    """Return a machine's hourly price while it is on: the price that it reports, or else the price in the table."""
    listed = prices.machine(machine["machine_type"])
    return machine["per_hour"] if machine["per_hour"] is not None else listed.usd if listed else None


def _cost_so_far(machine: Machine, now: float, prices: CloudPrices) -> float | None:
    price = hourly_rate(machine, prices)
    if price is None or machine["created"] is None:
        return None
    return price * max(0.0, now - machine["created"]) / 3600


def sum_or_none(amounts: Iterable[float | None]) -> float | None:
    """Return the sum, or None if any amount is unknown."""
    listed_amounts = list(amounts)
    return None if None in listed_amounts else sum(amount or 0.0 for amount in listed_amounts)


def find_expired(clusters: Iterable[ClusterOverview], ttl: float | None) -> list[str]:
    """Return a sentence for each cluster that is older than ttl, in seconds, and is still costing money.

    If ttl is None, no cluster is too old.
    """
    messages = []
    for cluster in clusters:
        if (
            ttl is not None
            and cluster["age"] is not None
            and cluster["age"] > ttl
            and (cluster["running"] or cluster["stopped"])
        ):
            cost = (
                f"{format_usd(cluster['per_hour'])} an hour" if cluster["running"] else "off, but its disks cost money"
            )
            messages.append(
                f"{cluster['cluster']} is {format_duration(cluster['age'])} old, "
                f"{format_duration(cluster['age'] - ttl)} more than its ttl of {format_duration(ttl)}: {cost}. "
                f"If it is no longer needed, remove it: teardown.yml -e cluster={cluster['cluster']}"
            )
    return messages


def format_overview(
    clusters: Sequence[ClusterOverview],
    other_machines: Sequence[Machine],
    prices: CloudPrices,
    ttl: float | None = None,
) -> list[str]:
    """Return the table, a line about machines not in any cluster, and a line for each cluster that is too old."""
    rows = [("CLUSTER", "REGION", "MACHINES", "TYPE", "AGE", "USD/HOUR", "USD SO FAR", "DISKS/MONTH", "AND")]
    for cluster in clusters:
        rows.append(
            (
                cluster["cluster"],
                cluster["region"],
                f"{cluster['running']} on, {cluster['stopped']} off"
                if cluster["stopped"]
                else f"{cluster['running']} on",
                ", ".join(cluster["types"]) or "-",
                "-" if cluster["age"] is None else format_duration(max(0.0, cluster["age"])),
                _format_amount(cluster["per_hour"]),
                "-" if cluster["cost_to_date"] is None else f"<= {cluster['cost_to_date']:.2f}",
                _format_amount(cluster["stopped_per_month"]),
                ", ".join(cluster["other_costs"]),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(8)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[8]]).rstrip()
        for row in rows
    ]
    output = table if clusters else ["no clusters"]
    if clusters:
        output.append(f"all clusters: {format_usd(sum_or_none(cluster['per_hour'] for cluster in clusters))} an hour")
    running = [machine for machine in other_machines if machine["state"] != "off"]
    if other_machines:
        price = format_usd(sum_or_none(hourly_rate(machine, prices) for machine in running))
        count = f"{len(other_machines)} machine{'' if len(other_machines) == 1 else 's'}"
        output.append(f"outside clusters: {count}, {len(running)} of them on, {price} an hour")
    return output + find_expired(clusters, ttl)


def _format_amount(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:.2f}"
