# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what belongs to a cluster, in a cloud without tags and unique names. Private to this collection.

The private network serves as the tag: muster-CLUSTER. A machine is the cluster's if it is in that network AND is named
CLUSTER-NUMBER; a drive, if it is there and is named CLUSTER-data. Scripts are in no network, so they have names that
nobody else would choose. Names must match exactly: bert, bert-2 and bertha are three clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    Drive,
    Machine,
    Network,
    Part,
    Script,
    There,
)

CLUSTER_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,29}[a-z0-9])?", re.ASCII)
PREFIX = "muster-"


class PlanRefused(Exception):
    """The request cannot or must not be carried out. str() is one line for a person."""


def network_name(cluster: str) -> str:
    """Name of the cluster's private network."""
    return PREFIX + cluster


def node_name(cluster: str, number: int) -> str:
    """Name of one machine; numbers start at 0."""
    return f"{cluster}-{number}"


def drive_name(cluster: str) -> str:
    """Name of the cluster's drive."""
    return f"{cluster}-data"


def script_name(cluster: str, digest: str) -> str:
    """Name of the first-boot script; digest: eight hex digits of its text's hash, since no API returns the text."""
    return f"{PREFIX}{cluster}-first-boot-{digest}"


def node_number(cluster: str, name: str) -> int | None:
    """The number in a node's name, None if the name is not the cluster's."""
    found = re.fullmatch(re.escape(cluster) + r"-(0|[1-9][0-9]{0,4})", name, re.ASCII)
    return int(found[1]) if found else None


def cluster_of(network: str) -> str | None:
    """The cluster that a network with this name belongs to, None if it is not ours."""
    name = network.removeprefix(PREFIX)
    return name if name != network and CLUSTER_NAME.fullmatch(name) else None


def own_network(cluster: str, networks: Iterable[Network], network_id: str = "") -> Network | None:
    """A cluster's network. Raises PlanRefused if several have its name and none is chosen."""
    named = [network for network in networks if network["name"] == network_name(cluster)]
    if network_id:
        chosen = [network for network in named if network["id"] == network_id]
        if not chosen:
            raise PlanRefused(
                f"no network has both the name {network_name(cluster)} and the id {network_id}; "
                f"there are: {_ids(named) or 'none of this name'}. Correct network_id, or leave it out"
            )
        return chosen[0]
    if len(named) > 1:
        raise PlanRefused(
            f"{len(named)} networks are called {network_name(cluster)}: {_ids(named)}. Which is the cluster's? "
            "Give its id with network_id, or remove the other in the console"
        )
    return named[0] if named else None


def _ids(networks: Iterable[Network]) -> str:
    return ", ".join(sorted(f"{network['id']} in {network['region']}" for network in networks))


def own_machines(cluster: str, network: Network | None, there: There) -> list[Machine]:
    """The cluster's machines by number, the oldest first among those with the same name."""
    if network is None:
        return []
    found = [(node_number(cluster, machine["name"]), machine) for machine in there["machines"]]
    own = [(number, machine) for number, machine in found if number is not None and machine["network"] == network["id"]]
    return [machine for _number, machine in sorted(own, key=lambda one: (one[0], *age_order(one[1])))]


def age_order(machine: Machine) -> tuple[bool, float, str]:
    """Sort key: oldest first, machines without a readable time last."""
    return machine["created"] is None, machine["created"] or 0.0, machine["id"]


def strangers_in(cluster: str, network: Network | None, there: There) -> list[Machine]:
    """Machines in the cluster's network that are not the cluster's."""
    if network is None:
        return []
    inside = [machine for machine in there["machines"] if machine["network"] == network["id"]]
    return [machine for machine in inside if node_number(cluster, machine["name"]) is None]


def namesakes(cluster: str, network: Network | None, there: There) -> list[Machine]:
    """Machines named like the cluster's, in other networks."""
    home = network["id"] if network else None
    named = [machine for machine in there["machines"] if node_number(cluster, machine["name"]) is not None]
    return [machine for machine in named if machine["network"] != home]


def own_drives(cluster: str, network: Network | None, there: There) -> list[Drive]:
    """The cluster's drives: one, unless someone made a second."""
    if network is None:
        return []
    inside = [drive for drive in there["drives"] if drive["network"] == network["id"]]
    return [drive for drive in inside if drive["name"] == drive_name(cluster)]


def own_parts(cluster: str, there: There) -> list[Part]:
    """The cluster's other parts."""
    return [one for one in there.get("parts", []) if one["cluster"] == cluster]


def own_scripts(cluster: str, machines: Iterable[Machine], there: There) -> list[Script]:
    """The cluster's scripts, with any text, except for those that others have assigned to their machines."""
    pattern = re.compile(re.escape(f"{PREFIX}{cluster}-first-boot-") + "[0-9a-f]{8}", re.ASCII)
    ours = {machine["id"] for machine in machines}
    alive = {machine["id"] for machine in there["machines"]}
    named = [script for script in there["scripts"] if pattern.fullmatch(script["name"])]
    return [script for script in named if not (set(script["machines"]) & alive) - ours]
