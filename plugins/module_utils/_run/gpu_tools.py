# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs that a run's supervisor uses to query its node's GPUs, by vendor."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan


class GpuTool:
    """A vendor's program: its name, and its uses by the supervisor other than sampling."""

    def __init__(self, name: str, has_snapshot: bool, has_accounting: bool, reads_health: bool) -> None:
        """Store the program's capabilities.

        has_snapshot: without arguments, it prints an overview. has_accounting: it reports the usage of ended processes.
        reads_health: NodeHealth knows its queries, and the driver's messages in the kernel log.
        """
        self.name = name
        self.has_snapshot = has_snapshot
        self.has_accounting = has_accounting
        self.reads_health = reads_health


DEFAULT = "nvidia"
TOOLS = {
    "nvidia": GpuTool("nvidia-smi", has_snapshot=True, has_accounting=True, reads_health=True),
    "amd": GpuTool("amd-smi", has_snapshot=False, has_accounting=False, reads_health=False),
}


def tool_of(plan: Plan) -> GpuTool:
    """Return the program for the GPUs of a plan's node; NVIDIA's by default."""
    return TOOLS.get(plan.get("gpu_vendor", DEFAULT), TOOLS[DEFAULT])


def health_command(plan: Plan) -> list[str]:
    """Return the command that samples a node's GPUs, or [] if the GPUs' health is not monitored."""
    return plan.get("gpu_samples", []) if tool_of(plan).reads_health else []
