# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes that Slurm has chosen for a run, by their inventory names. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster_plan import slurm_name


class NodeNotInInventoryError(Exception):
    """Slurm has chosen a node that is not in the inventory."""


def candidates_of(members: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the Slurm name and address of each host in the group, from which Slurm may choose."""
    return [
        {
            "name": str(hostvars[name].get("slurm_node") or slurm_name(name)),
            "address": str(hostvars[name].get("node_address") or hostvars[name].get("ansible_host") or ""),
        }
        for name in members
    ]


def inventory_names(
    nodes: Sequence[Mapping[str, str]], members: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return the inventory name of each node, by its Slurm name. Raise NodeNotInInventoryError.

    Args:
        nodes: name and address in Slurm.
        members: the hosts of the group.
    """
    pairs = list(zip(candidates_of(members, hostvars), members, strict=True))
    by_address = {candidate["address"]: name for candidate, name in pairs if candidate["address"]}
    by_name = {candidate["name"].lower(): name for candidate, name in pairs}
    result = {}
    for node in nodes:
        name = by_address.get(node["address"]) or by_name.get(node["name"].lower())
        if name is None:
            raise NodeNotInInventoryError(
                f"Slurm has chosen {node['name']} at {node['address'] or 'an unknown address'}, which is not in the "
                "inventory. Add it there, or exclude it with launch_slurm_exclude"
            )
        result[node["name"]] = name
    return result
