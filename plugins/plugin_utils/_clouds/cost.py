# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan's cost, and the plan in words. Private to this collection, pure."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    Cost,
    Machine,
    Plan,
    Stand,
    Wanted,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import (
    PAPERSPACE,
    TOLERANCE,
    Prices,
    machine_price,
)


def cost_of(wanted: Wanted, plan: Plan, price_per_hour: float | None = None, prices: Prices = PAPERSPACE) -> Cost:
    """The cost of the cluster after the plan is carried out.

    price_per_hour: of one machine; it overrides the table for new machines, and replaces unknown prices of existing
    ones. For a stopped or absent cluster, per_hour is 0, since no machine stays on.
    """
    made = sum(step["action"] == "make" and step["what"] == "machine" for step in plan["steps"])
    removed = {step["id"] for step in plan["steps"] if step["action"] == "remove"}
    staying = [machine for machine in [*plan["nodes"], *plan["doubles"]] if machine["id"] not in removed]
    unknown: list[str] = []
    listed = prices.machine(wanted["machine_type"])
    new = price_per_hour if price_per_hour is not None else listed.usd if listed else None
    if made and new is None:
        unknown.append(f"a machine of type {wanted['machine_type']}")
    rates = [_rate(machine, price_per_hour, unknown, prices) for machine in staying] + [new] * made
    on = 0.0 if wanted["stand"] != "present" else _sum(rates)
    disks = [machine["disk_gb"] for machine in staying] + [wanted["disk_gb"]] * made
    of_disks = [prices.disk(size) for size in disks]
    if None in of_disks:
        sizes = sorted({str(size or "?") for size, price in zip(disks, of_disks, strict=True) if price is None})
        unknown.append(f"a disk of {', '.join(sizes)} GB")
    drives = len([one for one in plan["drives"] if one["id"] not in removed]) + any(
        step["action"] == "make" and step["what"] == "drive" for step in plan["steps"]
    )
    if drives:
        unknown.append("the drive")
    if any(machine["fixed_address"] for machine in staying):
        unknown.append("fixed addresses")
    said = all(machine["per_hour"] is not None for machine in staying) and not made
    return {
        "per_hour": None if on is None else round(on, 4),
        "per_day": None if on is None else round(on * 24, 2),
        "disks_per_month": _sum([price.usd if price else None for price in of_disks]),
        "unknown": unknown,
        "source": prices.said if said else listed.source if listed else "given by you",
        "date": "" if said or not listed else listed.date,
        "disk_source": ", ".join(sorted({f"{price.source}, {price.date}" for price in of_disks if price})),
    }


def _rate(machine: Machine, price_per_hour: float | None, unknown: list[str], prices: Prices) -> float | None:
    if machine["per_hour"] is not None:
        return machine["per_hour"]
    listed = prices.machine(machine["machine_type"])
    if listed is None and price_per_hour is None:
        unknown.append(f"{machine['name']}, of type {machine['machine_type']}")
    return listed.usd if listed else price_per_hour


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def over_budget(cost: Cost, most: float | None, machine_type: str, page: str = PAPERSPACE.page) -> str:
    """Why the cost exceeds the hourly budget, "" if it does not."""
    if most is None:
        return "max_usd_per_hour is not given. Say what the cluster may cost an hour: -e max_usd_per_hour=10"
    if cost["per_hour"] is None:
        return (
            f"the price of {machine_type} is unknown here, so {most:g} USD an hour cannot be enforced. Look it up "
            f"at {page} and set it: -e provision_price_per_hour=..."
        )
    if cost["per_hour"] > most:
        return f"with {machine_type} it costs {usd(cost['per_hour'])} an hour, but max_usd_per_hour is {most:g}"
    return ""


def differing_prices(machines: Sequence[Machine]) -> list[str]:
    """One sentence for each type whose machines report a price different from the table's."""
    said = {}
    for machine in machines:
        listed = machine_price(machine["machine_type"])
        if listed and machine["per_hour"] and abs(machine["per_hour"] - listed.usd) > TOLERANCE * listed.usd:
            said[machine["machine_type"]] = (
                f"a machine of type {machine['machine_type']} costs {usd(machine['per_hour'])} an hour, not the "
                f"{usd(listed.usd)} of {listed.date}"
            )
    return list(said.values())


# --- Words


def usd(amount: float | None) -> str:
    """An amount in words for a person."""
    if amount is None:
        return "unknown"
    return "0 USD" if amount == 0 else f"{amount:.2f} USD" if amount >= 0.095 else f"{amount:.4f} USD"


def cost_words(cost: Cost, stand: Stand) -> str:
    """The cost of a cluster in one line."""
    words = "0 USD an hour"
    if stand == "present":
        source = f" ({cost['source']}{', ' + cost['date'] if cost['date'] else ''})"
        words = f"{usd(cost['per_hour'])} an hour, {usd(cost['per_day'])} a day{source}"
    source = f" ({cost['disk_source']})" if cost["disk_source"] else ""
    words += f"; its disks, on or off, {usd(cost['disks_per_month'])} a month{source}"
    return words + (f"; plus, at unknown cost: {', '.join(cost['unknown'])}" if cost["unknown"] else "")


def plan_lines(wanted: Wanted, plan: Plan) -> list[str]:
    """The plan for the screen: what exists, what would be done, what is left unchanged."""
    cluster = wanted["cluster"]
    lines = []
    if plan["network"]:
        there = plan["network"]
        lines.append(f"there: network {there['name']} ({there['id']}) in {there['region']}")
    for machine in plan["nodes"]:
        lines.append(f"there: {machine_words(machine)}")
    for machine in plan["doubles"]:
        lines.append(f"there, a second one of this name: {machine_words(machine)}")
    for part in plan["parts"]:
        lines.append(f"there: {part['what']} {part['name']} ({part['id']})")
    for drive in plan["drives"]:
        lines.append(f"there: drive {drive['name']} ({drive['id']})")
    for step in plan["steps"]:
        more = ""
        if step["action"] == "make" and step["what"] == "machine":
            more = f" of type {wanted['machine_type']} with {wanted['disk_gb']} GB"
        elif step["action"] == "make" and step["what"] == "drive":
            more = f" of {wanted['drive_gb']} GB"
        elif step["action"] == "make" and step["what"] == "VPC":
            more = f" with the addresses {wanted.get('address_block', '')}"
        name = f"{step['name']}" + (f" ({step['id']})" if step["id"] not in ("", step["name"]) else "")
        lines.append(f"to {step['action']}: {step['what']} {name}{more}")
    if not plan["steps"]:
        lines.append(f"nothing to do: {cluster} is as requested")
    lines += plan["kept"]
    if plan["namesakes"]:
        names = ", ".join(f"{machine['name']} ({machine['id']})" for machine in plan["namesakes"][:4])
        lines.append(f"left alone, since they are in other networks: {names}")
    return lines


def machine_words(machine: Machine) -> str:
    """A machine in one line."""
    price = f", {usd(machine['per_hour'])} an hour while it is on" if machine["per_hour"] is not None else ""
    return f"machine {machine['name']} ({machine['id']}) of type {machine['machine_type']}, {machine['said']}{price}"


def picture(wanted: Wanted, plan: Plan, cost: Cost, after: bool) -> dict[str, object]:
    """The cluster before or after the plan, for --diff, without addresses and secrets."""
    nodes = {machine["name"]: machine["state"] for machine in plan["nodes"]}
    network = plan["network"]["name"] if plan["network"] else None
    drive: str | None = plan["drives"][0]["name"] if plan["drives"] else None
    for step in plan["steps"] if after else []:
        gone = step["action"] == "remove"
        if step["what"] == "machine" and gone and step["id"] not in [one["id"] for one in plan["doubles"]]:
            nodes.pop(step["name"], None)
        elif step["what"] == "machine" and not gone:
            nodes[step["name"]] = "off" if step["action"] == "stop" else "ready"
        elif step["what"] == "network":
            network = None if gone else step["name"]
        elif step["what"] == "drive":
            drive = None if gone else step["name"]
    shown: dict[str, object] = {"network": network, "drive": drive, "nodes": dict(sorted(nodes.items()))}
    if after:
        shown["usd_per_hour"] = cost["per_hour"]
    return shown
