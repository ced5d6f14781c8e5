"""The inventory hosts of the nodes that Slurm has allocated."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._slurm.chosen_nodes import (
    NodeNotInInventoryError,
    candidates_of,
    inventory_names,
)

HOSTVARS: dict[str, dict[str, Any]] = {
    "GPU_1": {"node_address": "10.0.0.11"},
    "first": {"slurm_node": "c7", "ansible_host": "c7.example"},
}
MEMBERS = list(HOSTVARS)


def test_candidates_have_their_names_in_slurm() -> None:
    assert candidates_of(MEMBERS, HOSTVARS) == [
        {"name": "gpu-1", "address": "10.0.0.11"},
        {"name": "c7", "address": "c7.example"},
    ]


def test_nodes_are_matched_by_address_or_by_name() -> None:
    nodes = [{"name": "other", "address": "10.0.0.11"}, {"name": "C7", "address": "10.9.9.9"}]
    assert inventory_names(nodes, MEMBERS, HOSTVARS) == {"other": "GPU_1", "C7": "first"}
    with pytest.raises(NodeNotInInventoryError, match="chosen gpu9 at 10.0.0.99, which is not in the inventory"):
        inventory_names([{"name": "gpu9", "address": "10.0.0.99"}], MEMBERS, HOSTVARS)
