# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a rank that should wait for a debugger: it must exist, and its environment must have debugpy."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import get_launcher


def check_debugger(context: CheckContext) -> list[Finding]:
    """Report a rank to debug if it does not exist or does not have debugpy."""
    rank = context.job.debug_rank
    if rank is None:
        return []
    names = [node.name for node in context.table.nodes if 0 <= rank - node.first_rank < node.slots]
    if not names:
        last = context.table.world_size - 1
        return [
            error(
                "debug-rank",
                [context.table.nodes[0].name],
                problem=f"the rank to debug, {rank}, does not exist",
                requirement=f"a rank from 0 to {last}",
                remedy=f"choose another rank: ansible-playbook launch.yml -e debug_rank={min(rank, last)}",
            )
        ]
    launcher = get_launcher(context.job)
    if launcher.rank_logs == "launcher" and any(node.slots > 1 for node in context.table.nodes):
        return [
            error(
                "debug-rank",
                names,
                problem=f"with launch_launcher: {context.job.launcher}, the script itself starts rank {rank}, which "
                "would not wait for a debugger",
                requirement="a launcher that starts each rank, or one rank per node",
                remedy="start each rank with torchrun: ansible-playbook launch.yml -e launch_launcher=torchrun; or one "
                "process per node: ansible-playbook launch.yml -e nproc_per_node=1",
            )
        ]
    software = context.facts.get(names[0], {}).get("software") or {}
    if not software or software.get("error") or "debugpy" in software["packages"]:
        return []
    return [
        error(
            "debugpy-missing",
            names,
            problem=f"{context.interpreter_of(names[0])} has no debugpy, which rank {rank} needs to wait for a "
            "debugger",
            requirement="debugpy in the environment of the job's interpreter",
            remedy="add debugpy to the project's requirements, then run ansible-playbook site.yml --tags python_env",
        )
    ]
