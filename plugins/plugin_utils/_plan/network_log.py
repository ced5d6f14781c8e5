# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether NCCL logs the network that it uses: in runs whose nodes have several networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import NETWORK_LOG
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import RankTable


def network_log_environment(table: RankTable, facts: Mapping[str, Any], run_directory: str) -> dict[str, str]:
    """Return the variable that names NCCL's log, on all nodes if any of them has RDMA; see stack_hook.py."""
    if table.nnodes < 2 or not (has_rdma(facts) or facts.get("others_have_rdma")):
        return {}
    return {NETWORK_LOG: f"{run_directory}/nccl.%h.%p.log"}


def has_rdma(facts: Mapping[str, Any]) -> bool:
    """Return whether a node has an active RDMA port."""
    ports = (facts.get("system") or {}).get("rdma_ports") or []
    return any(port["state"] == "ACTIVE" for port in ports)


def add_rdma_of_others(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the facts of the nodes, by name, with whether any node of the run has RDMA.

    On a node without it, the log shows that NCCL does not use the same network as on the others.
    """
    anywhere = any(map(has_rdma, facts.values()))
    return {name: {**node, "others_have_rdma": anywhere} for name, node in facts.items()}
