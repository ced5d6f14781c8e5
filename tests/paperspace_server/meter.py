# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an account costs while it stands as it does: the imagined provider's own meter."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .account import Account

#: US dollars an hour. The provider tells none of these in a place that we have read: they only have to be above zero.
DRIVE_GIB = 0.0001
SNAPSHOT = 0.002
STATIC_ADDRESS = 0.005
TEMPLATE = 0.015


class Cost(NamedTuple):
    """A thing that costs. key: its id, or the address. usd: US dollars an hour."""

    kind: str
    key: str
    name: str
    usd: float


def costs(account: Account) -> list[Cost]:
    """All that costs something now: `off` is a machine's only state without an hourly fee, and its disk always has one.

    Networks and startup scripts cost nothing.
    """
    found = []
    for machine in account.machines:
        if machine["state"] != "off":
            found.append(Cost("machine", machine["id"], machine["name"], machine["usageRate"]))
        found.append(Cost("disk", machine["id"], machine["name"], machine["storageRate"]))
    found += [Cost("drive", d["id"], d["name"], DRIVE_GIB * d["size"] / 1024**3) for d in account.drives]
    found += [Cost("template", t["id"], t["name"], TEMPLATE) for t in account.templates]
    found += [Cost("address", ip["ip"], ip["ip"], STATIC_ADDRESS) for ip in account.public_ips]
    found += [Cost("snapshot", s["id"], s["name"], SNAPSHOT) for s in account.snapshots]
    return found
