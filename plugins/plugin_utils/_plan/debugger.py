# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rank that waits for a debugger, as defined in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.documents import Debugger
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job

# The timeouts of torch's own watchdogs, which are implemented in C++; programs/debug_rank.py extends those of
# collectives.
ENVIRONMENT = {"TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "86400"}


def debugger_of(job: Job, table: RankTable, directory: str) -> Debugger | None:
    """Return the rank that waits for a debugger, and its location, or None. directory: the job's directory on the
    nodes.
    """
    if job.debug_rank is None:
        return None
    names = [node.name for node in table.nodes if 0 <= job.debug_rank - node.first_rank < node.slots]
    return {
        "rank": job.debug_rank,
        "node": names[0] if names else "",
        "port": job.debug_port,
        "directory": directory,
    }


def debugger_problems(args: Mapping[str, Any]) -> list[str]:
    """Return the problems with a job's debugger options."""
    if args["debug_rank"] is None:
        return []
    problems = []
    if args["debug_rank"] < 0:
        problems.append(f"launch_debug_rank is {args['debug_rank']}; use a rank number, such as 3")
    if not args["stacks"]:
        problems.append("launch_debug_rank needs launch_stacks: true, since both use the same hook in the ranks")
    if args["no_python"]:
        problems.append("launch_debug_rank only supports Python: it cannot be used with launch_no_python")
    if args["image"]:
        problems.append("launch_debug_rank cannot be used with launch_image: debug without the container")
    if not 1024 <= args["debug_port"] <= 65535:
        problems.append(f"launch_debug_port is {args['debug_port']}; use a port from 1024 to 65535")
    return problems
