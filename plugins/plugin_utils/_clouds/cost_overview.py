# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of all clusters in an account, so far and from now on. Private to this collection, pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine, There
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    cluster_of,
    own_drives,
    own_machines,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import PAPERSPACE, Prices
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration


class Overview(TypedDict):
    """One cluster. age: seconds since its oldest machine was made, None without machines.

    per_hour, so_far, stopped_per_month: US dollars, None if a price is not known. so_far is the most that the
    machines can have cost, if they were always on: the API does not say since when one is on. stopped_per_month is
    the cost of all its machines' disks, on or off. besides: other things that cost, at an unknown price.
    """

    cluster: str
    network: str
    region: str
    types: list[str]
    on: int
    off: int
    age: float | None
    per_hour: float | None
    so_far: float | None
    stopped_per_month: float | None
    besides: list[str]


def overview(there: There, now: float, prices: Prices = PAPERSPACE) -> tuple[list[Overview], list[Machine]]:
    """Each cluster, by name, and the machines outside clusters. now: seconds since 1970."""
    found: list[Overview] = []
    ours: set[str] = set()
    for network in sorted(there["networks"], key=lambda one: (one["name"], one["id"])):
        cluster = cluster_of(network["name"])
        if cluster is None:
            continue
        machines = own_machines(cluster, network, there)
        ours |= {machine["id"] for machine in machines}
        on = [machine for machine in machines if machine["state"] != "off"]
        ages = [now - machine["created"] for machine in machines if machine["created"] is not None]
        besides = [f"drive {drive['name']}" for drive in own_drives(cluster, network, there)]
        besides += [f"address {machine['public_ip']}" for machine in machines if machine["fixed_address"]]
        disks = [prices.disk(machine["disk_gb"]) for machine in machines]
        found.append(
            {
                "cluster": cluster,
                "network": network["id"],
                "region": network["region"],
                "types": sorted({machine["machine_type"] for machine in machines}),
                "on": len(on),
                "off": len(machines) - len(on),
                "age": max(ages, default=None),
                "per_hour": total(rate(machine, prices) for machine in on),
                "so_far": total(_so_far(machine, now, prices) for machine in machines),
                "stopped_per_month": total(price.usd if price else None for price in disks),
                "besides": besides,
            }
        )
    return found, [machine for machine in there["machines"] if machine["id"] not in ours]


def rate(machine: Machine, prices: Prices = PAPERSPACE) -> float | None:
    """A machine's price per hour while it is on, as it reports or else from the table."""
    listed = prices.machine(machine["machine_type"])
    return machine["per_hour"] if machine["per_hour"] is not None else listed.usd if listed else None


def _so_far(machine: Machine, now: float, prices: Prices) -> float | None:
    price = rate(machine, prices)
    if price is None or machine["created"] is None:
        return None
    return price * max(0.0, now - machine["created"]) / 3600


def total(parts: Iterable[float | None]) -> float | None:
    """The sum, None if a part is unknown."""
    known = list(parts)
    return None if None in known else sum(part or 0.0 for part in known)


def too_old(clusters: Iterable[Overview], ttl: float | None) -> list[str]:
    """One sentence for each cluster older than ttl, in seconds, that still costs money.

    If ttl is None, no cluster is too old.
    """
    said = []
    for one in clusters:
        if ttl is not None and one["age"] is not None and one["age"] > ttl and (one["on"] or one["off"]):
            doing = f"{usd(one['per_hour'])} an hour" if one["on"] else "off, but its disks cost money"
            said.append(
                f"{one['cluster']} is {duration(one['age'])} old, {duration(one['age'] - ttl)} more than its ttl of "
                f"{duration(ttl)}: {doing}. Still needed? If not: teardown.yml -e cluster={one['cluster']}"
            )
    return said


def lines(
    clusters: Sequence[Overview], others: Sequence[Machine], prices: Prices = PAPERSPACE, ttl: float | None = None
) -> list[str]:
    """The table for the screen, a line for machines outside clusters, and one for each cluster that is too old."""
    rows = [("CLUSTER", "REGION", "MACHINES", "TYPE", "AGE", "USD/HOUR", "USD SO FAR", "DISKS/MONTH", "AND")]
    for one in clusters:
        rows.append(
            (
                one["cluster"],
                one["region"],
                f"{one['on']} on, {one['off']} off" if one["off"] else f"{one['on']} on",
                ", ".join(one["types"]) or "-",
                "-" if one["age"] is None else duration(max(0.0, one["age"])),
                _amount(one["per_hour"]),
                "-" if one["so_far"] is None else f"<= {one['so_far']:.2f}",
                _amount(one["stopped_per_month"]),
                ", ".join(one["besides"]),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(8)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[8]]).rstrip()
        for row in rows
    ]
    said = table if clusters else ["there is no cluster"]
    if clusters:
        said.append(f"all clusters: {usd(total(one['per_hour'] for one in clusters))} an hour")
    on = [machine for machine in others if machine["state"] != "off"]
    if others:
        price = usd(total(rate(machine, prices) for machine in on))
        said.append(f"besides: {len(others)} machines outside any cluster, {len(on)} of them on, {price} an hour")
    return said + too_old(clusters, ttl)


def _amount(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:.2f}"
