# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether NCCL logs the network that it uses: on nodes with several networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._rank_table import RankTable
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import NETWORK_LOG


def network_log_environment(table: RankTable, facts: Mapping[str, Any], run_directory: str) -> dict[str, str]:
    """Return the variable that names NCCL's log, on nodes that reach others by RDMA; see stack_hook.py."""
    ports = (facts.get("system") or {}).get("rdma_ports") or []
    if table.nnodes < 2 or not any(port["state"] == "ACTIVE" for port in ports):
        return {}
    return {NETWORK_LOG: f"{run_directory}/nccl.%h.%p.log"}
