# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._plan.network_log import (
    add_rdma_of_others,
    network_log_environment,
)

ONE_NODE = build_rank_table([HostSpec("a", "10.0.0.1", 1)])
TWO = build_rank_table([HostSpec("a", "10.0.0.1", 1), HostSpec("b", "10.0.0.2", 1)])
ACTIVE = {"system": {"rdma_ports": [{"name": "mlx5_0/1", "state": "ACTIVE"}]}}


def test_nccl_logs_its_network_on_nodes_with_an_active_rdma_port_and_peers() -> None:
    assert network_log_environment(TWO, ACTIVE, "/runs/a") == {"MUSTER_NCCL_LOG": "/runs/a/nccl.%h.%p.log"}
    assert network_log_environment(ONE_NODE, ACTIVE, "/runs/a") == {}
    down = {"system": {"rdma_ports": [{"name": "mlx5_0/1", "state": "DOWN"}]}}
    other_facts: list[dict[str, Any]] = [down, {"system": {}}, {}]
    for facts in other_facts:
        assert network_log_environment(TWO, facts, "/runs/a") == {}


def test_nccl_logs_its_network_on_all_nodes_if_any_of_them_has_rdma() -> None:
    """Otherwise, the network of the node without RDMA would be unknown."""
    facts = add_rdma_of_others({"a": ACTIVE, "b": {"system": {"rdma_ports": []}}})
    assert network_log_environment(TWO, facts["b"], "/runs/b") == {"MUSTER_NCCL_LOG": "/runs/b/nccl.%h.%p.log"}
    without = add_rdma_of_others({"a": {}, "b": {"system": {}}})
    assert network_log_environment(TWO, without["b"], "/runs/b") == {}
