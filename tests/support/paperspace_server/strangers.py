# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign resources in the account: operations on a cluster must not change a byte of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .objects import (
    custom_template,
    drive,
    machine,
    network,
    public_ip,
    snapshot,
    startup_script,
    time_at_minute,
)

if TYPE_CHECKING:
    from .account import PaperspaceAccount

_FIRST_NUMBER = 0x500000


def add_foreign_resources(account: PaperspaceAccount, cluster: str) -> None:
    """Add resources that a careless teardown of the cluster would remove: similar names in other networks.

    One machine has the exact name of a node of the cluster; a drive and a script have the cluster's name.
    """
    neighbor = network(2, id="nwneighbor", name=f"muster-{cluster}-2", dtCreated=time_at_minute(1))
    account.networks += [neighbor, network(3, id="nwlonger", name=f"muster-{cluster}ha", dtCreated=time_at_minute(2))]
    account.machines += [
        machine(
            _FIRST_NUMBER + number, name=name, networkId=network_id, state=state, dtCreated=time_at_minute(3 + number)
        )
        for number, (name, network_id, state) in enumerate(
            [
                (f"{cluster}-0", "nwneighbor", "ready"),
                (f"{cluster}-1", "nwlonger", "off"),
                (f"{cluster}-2-0", "nwneighbor", "ready"),
                (cluster, "nwshared", "ready"),
                (f"{cluster}ha-0", "nwlonger", "provisioning"),
            ]
        )
    ]
    owner = account.machines[-1]["id"]
    account.drives.append(drive(_FIRST_NUMBER, name=cluster, networkId="nwneighbor"))
    account.templates.append(custom_template(_FIRST_NUMBER, name=f"muster-{cluster}-2", parentMachineId=owner))
    account.scripts.append(startup_script(_FIRST_NUMBER, name=f"{cluster}-2-first-boot"))
    account.snapshots.append(snapshot(_FIRST_NUMBER, machineId=owner))
    account.public_ips += [public_ip("198.18.200.1"), public_ip("198.18.200.2", assignedMachineId=owner)]
    for items, key in account.resource_lists():
        account.foreign_keys |= {item[key] for item in items}


def serialize_foreign(account: PaperspaceAccount) -> bytes:
    """Return all foreign resources, as bytes to compare."""
    parts = [[item for item in items if item[key] in account.foreign_keys] for items, key in account.resource_lists()]
    return json.dumps(parts, sort_keys=True).encode()


def remaining_keys(account: PaperspaceAccount) -> list[str]:
    """Return the keys of all resources that are not foreign: empty once a cluster is completely removed."""
    return [
        item[key] for items, key in account.resource_lists() for item in items if item[key] not in account.foreign_keys
    ]
