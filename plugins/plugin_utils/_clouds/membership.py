# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which resources belong to a cluster on a provider without tags and unique names.

The private network serves as the tag: muster-CLUSTER. A machine is the cluster's if it is in that network AND is named
CLUSTER-NUMBER; a drive, if it is in that network and is named CLUSTER-data. Scripts are in no network, so they have
names that nobody else would choose. Names must match exactly: bert, bert-2 and bertha are three clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    BootScript,
    ClusterPart,
    Drive,
    Machine,
    Network,
)

CLUSTER_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,29}[a-z0-9])?", re.ASCII)
NAME_PREFIX = "muster-"


class PlanRefusedError(Exception):
    """The request cannot or must not be carried out. str() is a one-line message for the user."""


def network_name(cluster: str) -> str:
    """Return the name of the cluster's private network."""
    return NAME_PREFIX + cluster


def node_name(cluster: str, number: int) -> str:
    """Return the name of one machine; numbers start at 0."""
    return f"{cluster}-{number}"


def drive_name(cluster: str) -> str:
    """Return the name of the cluster's drive."""
    return f"{cluster}-data"


def script_name(cluster: str, digest: str) -> str:
    """Return the first-boot script's name. digest: 8 hex digits of the hash of its text, which no API returns."""
    return f"{NAME_PREFIX}{cluster}-first-boot-{digest}"


def node_number(cluster: str, name: str) -> int | None:
    """Return the number in a node's name, or None if the cluster has no such name."""
    match = re.fullmatch(re.escape(cluster) + r"-(0|[1-9][0-9]{0,4})", name, re.ASCII)
    return int(match[1]) if match else None


def parse_cluster_name(network: str) -> str | None:
    """Return the cluster that a network with this name belongs to, or None if it belongs to no cluster."""
    name = network.removeprefix(NAME_PREFIX)
    return name if name != network and CLUSTER_NAME.fullmatch(name) else None


def find_network(cluster: str, networks: Iterable[Network], network_id: str = "") -> Network | None:
    """Return a cluster's network, or None. Raise PlanRefusedError if several have its name and none was chosen."""
    matches = [network for network in networks if network["name"] == network_name(cluster)]
    if network_id:
        chosen = [network for network in matches if network["id"] == network_id]
        if not chosen:
            raise PlanRefusedError(
                f"no network has both the name {network_name(cluster)} and the id {network_id}. Networks with "
                f"this name: {_format_networks(matches) or 'none'}. Correct provision_network_id, or omit it"
            )
        return chosen[0]
    if len(matches) > 1:
        raise PlanRefusedError(
            f"{len(matches)} networks are named {network_name(cluster)}: {_format_networks(matches)}. Select the "
            "cluster's network by its id with provision_network_id, or remove the others in the console"
        )
    return matches[0] if matches else None


def _format_networks(networks: Iterable[Network]) -> str:
    return ", ".join(sorted(f"{network['id']} in {network['region']}" for network in networks))


def find_machines(cluster: str, network: Network | None, resources: AccountResources) -> list[Machine]:
    """Return the cluster's machines by number; machines with the same name are ordered oldest first."""
    if network is None:
        return []
    numbered = [(node_number(cluster, machine["name"]), machine) for machine in resources["machines"]]
    members = [
        (number, machine) for number, machine in numbered if number is not None and machine["network"] == network["id"]
    ]
    return [machine for _number, machine in sorted(members, key=lambda member: (member[0], *age_sort_key(member[1])))]


def age_sort_key(machine: Machine) -> tuple[bool, float, str]:
    """Return a sort key that puts the oldest first and machines without a valid creation time last."""
    return machine["created"] is None, machine["created"] or 0.0, machine["id"]


def find_foreign_machines(cluster: str, network: Network | None, resources: AccountResources) -> list[Machine]:
    """Return the machines in the cluster's network that do not belong to the cluster."""
    if network is None:
        return []
    inside = [machine for machine in resources["machines"] if machine["network"] == network["id"]]
    return [machine for machine in inside if node_number(cluster, machine["name"]) is None]


def find_namesakes(cluster: str, network: Network | None, resources: AccountResources) -> list[Machine]:
    """Return the machines in other networks that have the same names as the cluster's machines."""
    network_id = network["id"] if network else None
    matches = [machine for machine in resources["machines"] if node_number(cluster, machine["name"]) is not None]
    return [machine for machine in matches if machine["network"] != network_id]


def find_drives(cluster: str, network: Network | None, resources: AccountResources) -> list[Drive]:
    """Return the cluster's drives: at most one, unless someone created another."""
    if network is None:
        return []
    inside = [drive for drive in resources["drives"] if drive["network"] == network["id"]]
    return [drive for drive in inside if drive["name"] == drive_name(cluster)]


def find_parts(cluster: str, resources: AccountResources) -> list[ClusterPart]:
    """Return the cluster's other parts."""
    return [part for part in resources.get("parts", []) if part["cluster"] == cluster]


def find_scripts(cluster: str, machines: Iterable[Machine], resources: AccountResources) -> list[BootScript]:
    """Return the cluster's scripts, whatever their text, except those assigned to machines outside the cluster."""
    pattern = re.compile(re.escape(f"{NAME_PREFIX}{cluster}-first-boot-") + "[0-9a-f]{8}", re.ASCII)
    machine_ids = {machine["id"] for machine in machines}
    existing_ids = {machine["id"] for machine in resources["machines"]}
    matches = [script for script in resources["scripts"] if pattern.fullmatch(script["name"])]
    return [script for script in matches if not (set(script["machines"]) & existing_ids) - machine_ids]
