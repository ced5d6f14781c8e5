# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of reports about joined nodes from the node that leads a run."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action.run_join import check_replacements

PLAN: Any = {"nodes": [{"name": "gpu1", "address": "10.0.0.1"}, {"name": "gpu2", "address": "10.0.0.2"}]}
HOSTVARS = {
    "gpu3": {"node_address": "10.0.0.3", "ansible_host": "gpu3.example.org"},
    "gpu4": {"ansible_host": "10.0.0.4"},
    "gpu5": {},
}


def nodes(name: str, address: str, generation: int = 1) -> list[dict[str, Any]]:
    return [{**PLAN["nodes"][0], "generation": 0}, {"name": name, "address": address, "generation": generation}]


@pytest.mark.parametrize(("name", "address"), [("gpu3", "10.0.0.3"), ("gpu4", "10.0.0.4"), ("gpu5", "gpu5")])
def test_new_nodes_are_those_of_the_inventory(name: str, address: str) -> None:
    check_replacements(PLAN, nodes(name, address), HOSTVARS)


@pytest.mark.parametrize(("name", "address"), [("gpu9", "10.0.0.9"), ("gpu3", "10.6.6.6"), ("gpu4", "gpu4")])
def test_node_cannot_choose_machine_names(name: str, address: str) -> None:
    with pytest.raises(ValueError, match=f"the run (has|now includes) .*{name}"):
        check_replacements(PLAN, nodes(name, address), HOSTVARS)


def test_nodes_of_the_record_need_not_be_in_the_inventory() -> None:
    check_replacements(PLAN, nodes("gpu2", "10.0.0.2", 0), HOSTVARS)
    plan: Any = {"nodes": [PLAN["nodes"][0], {"name": "gpu8", "address": "10.0.0.8", "generation": 2}]}
    check_replacements(plan, nodes("gpu8", "10.0.0.8", 2), HOSTVARS)
