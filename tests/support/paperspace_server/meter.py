# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The current cost of a simulated account, per resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .account import PaperspaceAccount

# US dollars per hour. The provider does not document these prices: any value above zero will do for the tests.
DRIVE_GIB = 0.0001
SNAPSHOT = 0.002
STATIC_ADDRESS = 0.005
TEMPLATE = 0.015


class MeteredCost(NamedTuple):
    """A billed resource. key: its id or address. usd: US dollars per hour."""

    kind: str
    key: str
    name: str
    usd: float


def list_costs(account: PaperspaceAccount) -> list[MeteredCost]:
    """Return everything that is billed now: a machine unless it is `off`, and its disk in any state.

    Networks and startup scripts are free.
    """
    items = []
    for machine in account.machines:
        if machine["state"] != "off":
            items.append(MeteredCost("machine", machine["id"], machine["name"], machine["usageRate"]))
        items.append(MeteredCost("disk", machine["id"], machine["name"], machine["storageRate"]))
    items += [MeteredCost("drive", d["id"], d["name"], DRIVE_GIB * d["size"] / 1024**3) for d in account.drives]
    items += [MeteredCost("template", t["id"], t["name"], TEMPLATE) for t in account.templates]
    items += [MeteredCost("address", ip["ip"], ip["ip"], STATIC_ADDRESS) for ip in account.public_ips]
    items += [MeteredCost("snapshot", s["id"], s["name"], SNAPSHOT) for s in account.snapshots]
    return items
