# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What belongs to a cluster, in a cloud that has neither tags nor unique names. Private to this collection.

The private network is the tag: muster-CLUSTER. A machine is the cluster's if it is in that network AND is called
CLUSTER-NUMBER; a drive, if it is there and is called CLUSTER-data. Scripts are in no network, so their name is one that
nobody else chooses. All names are compared letter by letter: bert, bert-2 and bertha are three clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._cluster_plan.documents import (
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
    """What was requested cannot or must not be done. str() is one line for a person."""


def network_name(cluster: str) -> str:
    """Name of the cluster's private network."""
    return PREFIX + cluster


def node_name(cluster: str, number: int) -> str:
    """Name of one machine; numbers begin with 0."""
    return f"{cluster}-{number}"


def drive_name(cluster: str) -> str:
    """Name of the cluster's drive."""
    return f"{cluster}-data"


def script_name(cluster: str, digest: str) -> str:
    """Name of the script of the first boot; digest: of its text, eight hexadecimal digits, since no API returns it."""
    return f"{PREFIX}{cluster}-first-boot-{digest}"


def node_number(cluster: str, name: str) -> int | None:
    """The number in a node's name, None if the name is none of the cluster's."""
    found = re.fullmatch(re.escape(cluster) + r"-(0|[1-9][0-9]{0,4})", name, re.ASCII)
    return int(found[1]) if found else None


def cluster_of(network: str) -> str | None:
    """The cluster that a network of this name belongs to, None for a stranger's."""
    name = network.removeprefix(PREFIX)
    return name if name != network and CLUSTER_NAME.fullmatch(name) else None


def own_network(cluster: str, networks: Iterable[Network], network_id: str = "") -> Network | None:
    """The network of a cluster. Raises PlanRefused if several have its name and none is chosen."""
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
    """The cluster's machines by number, and among those of one name the oldest first."""
    if network is None:
        return []
    found = [(node_number(cluster, machine["name"]), machine) for machine in there["machines"]]
    own = [(number, machine) for number, machine in found if number is not None and machine["network"] == network["id"]]
    return [machine for _number, machine in sorted(own, key=lambda one: (one[0], *age_order(one[1])))]


def age_order(machine: Machine) -> tuple[bool, float, str]:
    """Oldest first; without a readable time last."""
    return machine["created"] is None, machine["created"] or 0.0, machine["id"]


def strangers_in(cluster: str, network: Network | None, there: There) -> list[Machine]:
    """Machines in the cluster's network that are not the cluster's."""
    if network is None:
        return []
    inside = [machine for machine in there["machines"] if machine["network"] == network["id"]]
    return [machine for machine in inside if node_number(cluster, machine["name"]) is None]


def namesakes(cluster: str, network: Network | None, there: There) -> list[Machine]:
    """Machines that are called like the cluster's but are elsewhere."""
    home = network["id"] if network else None
    named = [machine for machine in there["machines"] if node_number(cluster, machine["name"]) is not None]
    return [machine for machine in named if machine["network"] != home]


def own_drives(cluster: str, network: Network | None, there: There) -> list[Drive]:
    """The cluster's drives: one, unless somebody made a second."""
    if network is None:
        return []
    inside = [drive for drive in there["drives"] if drive["network"] == network["id"]]
    return [drive for drive in inside if drive["name"] == drive_name(cluster)]


def own_parts(cluster: str, there: There) -> list[Part]:
    """What else is the cluster's."""
    return [one for one in there.get("parts", []) if one["cluster"] == cluster]


def own_scripts(cluster: str, machines: Iterable[Machine], there: There) -> list[Script]:
    """The cluster's scripts, of whatever text. One that somebody gave to a machine of theirs is no longer ours."""
    pattern = re.compile(re.escape(f"{PREFIX}{cluster}-first-boot-") + "[0-9a-f]{8}", re.ASCII)
    ours = {machine["id"] for machine in machines}
    alive = {machine["id"] for machine in there["machines"]}
    named = [script for script in there["scripts"] if pattern.fullmatch(script["name"])]
    return [script for script in named if not (set(script["machines"]) & alive) - ours]
