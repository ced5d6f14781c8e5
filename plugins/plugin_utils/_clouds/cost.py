# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of a plan, and texts that describe the plan and its cost."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    DesiredState,
    Machine,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices

# Fraction of the listed price: a machine whose price deviates by more is reported.
TOLERANCE = 0.02


def estimate_cost(
    desired: DesiredCluster, plan: ClusterPlan, prices: CloudPrices, price_per_hour: float | None = None
) -> ClusterCost:
    """Estimate the cluster's cost after the plan has been carried out.

    For a stopped or absent cluster, per_hour is 0, since no machine stays on.

    Args:
        price_per_hour: price of one machine. It overrides the table for new machines, and replaces unknown prices of
            existing ones.
    """
    new_count = sum(step["action"] == "make" and step["kind"] == "machine" for step in plan["steps"])
    removed = {step["id"] for step in plan["steps"] if step["action"] == "remove"}
    remaining = [machine for machine in [*plan["nodes"], *plan["duplicates"]] if machine["id"] not in removed]
    unknown: list[str] = []
    listed_price = prices.machine(desired["machine_type"])
    new_rate = price_per_hour if price_per_hour is not None else listed_price.usd if listed_price else None
    if new_count and new_rate is None:
        unknown.append(f"a machine of type {desired['machine_type']}")
    rates = [_hourly_rate(machine, price_per_hour, unknown, prices) for machine in remaining] + [new_rate] * new_count
    hourly = 0.0 if desired["state"] != "present" else _sum_known(rates)
    disks = [machine["disk_gb"] for machine in remaining] + [desired["disk_gb"]] * new_count
    disk_prices = [prices.disk(size) for size in disks]
    if None in disk_prices:
        sizes = sorted({str(size or "?") for size, price in zip(disks, disk_prices, strict=True) if price is None})
        unknown.append(f"a disk of {', '.join(sizes)} GB")
    drive_count = len([drive for drive in plan["drives"] if drive["id"] not in removed]) + any(
        step["action"] == "make" and step["kind"] == "drive" for step in plan["steps"]
    )
    if drive_count:
        unknown.append("the drive")
    if any(machine["fixed_address"] for machine in remaining):
        unknown.append("fixed addresses")
    reported = all(machine["per_hour"] is not None for machine in remaining) and not new_count
    return {
        "per_hour": None if hourly is None else round(hourly, 4),
        "per_day": None if hourly is None else round(hourly * 24, 2),
        "disks_per_month": _sum_known([price.usd if price else None for price in disk_prices]),
        "unknown": unknown,
        "source": prices.reported_source if reported else listed_price.source if listed_price else "set by you",
        "date": "" if reported or not listed_price else listed_price.date,
        "disk_source": ", ".join(sorted({f"{price.source}, {price.date}" for price in disk_prices if price})),
    }


def _hourly_rate(
    machine: Machine, price_per_hour: float | None, unknown: list[str], prices: CloudPrices
) -> float | None:
    if machine["per_hour"] is not None:
        return machine["per_hour"]
    listed = prices.machine(machine["machine_type"])
    if listed is None and price_per_hour is None:
        unknown.append(f"{machine['name']}, of type {machine['machine_type']}")
    return listed.usd if listed else price_per_hour


def _sum_known(amounts: Sequence[float | None]) -> float | None:
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if len(known_amounts) == len(amounts) else None


def budget_error(cost: ClusterCost, limit: float | None, machine_type: str, page: str) -> str:
    """Return why the hourly budget does not allow the cost, or an empty string if it does."""
    if limit is None:
        return "max_usd_per_hour is not set. Set a limit for the hourly cost of the cluster: -e max_usd_per_hour=10"
    if cost["per_hour"] is None:
        return (
            f"the price of {machine_type} is unknown, so the limit of {limit:g} USD an hour cannot be enforced. Look "
            f"up the price at {page} and set it: -e provision_price_per_hour=..."
        )
    if cost["per_hour"] > limit:
        price = format_usd(cost["per_hour"])
        return f"with {machine_type}, the cluster costs {price} an hour, but max_usd_per_hour is {limit:g}"
    return ""


def find_price_differences(machines: Sequence[Machine], prices: CloudPrices) -> list[str]:
    """Return a sentence for each type whose machines report a different price than the table lists."""
    messages = {}
    for machine in machines:
        listed = prices.machine(machine["machine_type"])
        if listed and machine["per_hour"] and abs(machine["per_hour"] - listed.usd) > TOLERANCE * listed.usd:
            messages[machine["machine_type"]] = (
                f"a machine of type {machine['machine_type']} costs {format_usd(machine['per_hour'])} an hour instead "
                f"of {format_usd(listed.usd)} as of {listed.date}"
            )
    return list(messages.values())


# --- Texts


def format_usd(amount: float | None) -> str:
    """Format an amount, such as 1.50 USD."""
    if amount is None:
        return "unknown"
    return "0 USD" if amount == 0 else f"{amount:.2f} USD" if amount >= 0.095 else f"{amount:.4f} USD"


def format_cost(cost: ClusterCost, state: DesiredState) -> str:
    """Return one line about a cluster's cost."""
    text = "0 USD an hour"
    if state == "present":
        source = f" ({cost['source']}{', ' + cost['date'] if cost['date'] else ''})"
        text = f"{format_usd(cost['per_hour'])} an hour, {format_usd(cost['per_day'])} a day{source}"
    source = f" ({cost['disk_source']})" if cost["disk_source"] else ""
    text += f"; disks, whether machines are on or off: {format_usd(cost['disks_per_month'])} a month{source}"
    return text + (f"; unknown cost: {', '.join(cost['unknown'])}" if cost["unknown"] else "")


def format_plan(desired: DesiredCluster, plan: ClusterPlan) -> list[str]:
    """Return lines that describe a plan: existing resources, steps and unchanged resources."""
    cluster = desired["cluster"]
    lines = []
    if plan["network"]:
        network = plan["network"]
        lines.append(f"exists: network {network['name']} ({network['id']}) in {network['region']}")
    for machine in plan["nodes"]:
        lines.append(f"exists: {format_machine(machine)}")
    for machine in plan["duplicates"]:
        lines.append(f"duplicate: {format_machine(machine)}")
    for part in plan["parts"]:
        lines.append(f"exists: {part['kind']} {part['name']} ({part['id']})")
    for drive in plan["drives"]:
        lines.append(f"exists: drive {drive['name']} ({drive['id']})")
    for step in plan["steps"]:
        details = ""
        if step["action"] == "make" and step["kind"] == "machine":
            details = f" of type {desired['machine_type']} with {desired['disk_gb']} GB"
        elif step["action"] == "make" and step["kind"] == "drive":
            details = f" of {desired['drive_gb']} GB"
        elif step["action"] == "make" and step["kind"] == "VPC":
            details = f" with address block {desired.get('address_block', '')}"
        name = f"{step['name']}" + (f" ({step['id']})" if step["id"] not in ("", step["name"]) else "")
        verb = "create" if step["action"] == "make" else step["action"]
        lines.append(f"{verb}: {step['kind']} {name}{details}")
    if not plan["steps"]:
        lines.append(f"nothing to do: {cluster} is as requested")
    lines += plan["retained"]
    if plan["namesakes"]:
        names = ", ".join(f"{machine['name']} ({machine['id']})" for machine in plan["namesakes"][:4])
        lines.append(f"ignored (in other networks): {names}")
    return lines


def format_machine(machine: Machine) -> str:
    """Describe a machine on one line."""
    price = f", {format_usd(machine['per_hour'])} an hour while it is on" if machine["per_hour"] is not None else ""
    name = f"machine {machine['name']} ({machine['id']})"
    return f"{name} of type {machine['machine_type']}, {machine['provider_state']}{price}"


def cluster_snapshot(desired: DesiredCluster, plan: ClusterPlan, cost: ClusterCost, after: bool) -> dict[str, object]:
    """Return the state of the cluster before or after the plan, for --diff, without addresses or secrets."""
    nodes = {machine["name"]: machine["state"] for machine in plan["nodes"]}
    network = plan["network"]["name"] if plan["network"] else None
    drive: str | None = plan["drives"][0]["name"] if plan["drives"] else None
    for step in plan["steps"] if after else []:
        removed = step["action"] == "remove"
        if (
            step["kind"] == "machine"
            and removed
            and step["id"] not in [machine["id"] for machine in plan["duplicates"]]
        ):
            nodes.pop(step["name"], None)
        elif step["kind"] == "machine" and not removed:
            nodes[step["name"]] = "off" if step["action"] == "stop" else "ready"
        elif step["kind"] == "network":
            network = None if removed else step["name"]
        elif step["kind"] == "drive":
            drive = None if removed else step["name"]
    snapshot: dict[str, object] = {"network": network, "drive": drive, "nodes": dict(sorted(nodes.items()))}
    if after:
        snapshot["usd_per_hour"] = cost["per_hour"]
    return snapshot
