# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other people's things in the account: nothing that a cluster does may change a byte of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .objects import (
    custom_template,
    drive,
    machine,
    moment,
    network,
    public_ip,
    snapshot,
    startup_script,
)

if TYPE_CHECKING:
    from .account import Account

_FIRST = 0x500000


def sprinkle(account: Account, cluster: str) -> None:
    """Add what a careless clean-up of the cluster would take with it: names that begin like its own, in other networks.

    One machine has the very name of a node of the cluster, a drive and a script that of the cluster.
    """
    neighbours = network(2, id="nwneighbor", name=f"muster-{cluster}-2", dtCreated=moment(1))
    account.networks += [neighbours, network(3, id="nwlonger", name=f"muster-{cluster}ha", dtCreated=moment(2))]
    account.machines += [
        machine(_FIRST + number, name=name, networkId=network_id, state=state, dtCreated=moment(3 + number))
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
    account.drives.append(drive(_FIRST, name=cluster, networkId="nwneighbor"))
    account.templates.append(custom_template(_FIRST, name=f"muster-{cluster}-2", parentMachineId=owner))
    account.scripts.append(startup_script(_FIRST, name=f"{cluster}-2-first-boot"))
    account.snapshots.append(snapshot(_FIRST, machineId=owner))
    account.public_ips += [public_ip("198.18.200.1"), public_ip("198.18.200.2", assignedMachineId=owner)]
    for items, key in account.lists():
        account.foreign |= {item[key] for item in items}


def foreign_bytes(account: Account) -> bytes:
    """All that was in the account before, as bytes to compare."""
    parts = [[item for item in items if item[key] in account.foreign] for items, key in account.lists()]
    return json.dumps(parts, sort_keys=True).encode()


def left_over(account: Account) -> list[str]:
    """Keys of all that is not other people's: empty when a cluster is gone without a trace."""
    return [item[key] for items, key in account.lists() for item in items if item[key] not in account.foreign]
