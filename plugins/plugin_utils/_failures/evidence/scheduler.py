# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about why a scheduler ended a job."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Why the scheduler ended the job"
CANCELLED = ("slurm-cancelled",)
RESUME = "launch again from the last checkpoint, and save more often than once per time limit"
RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="slurm-time-limit",
        entries=CANCELLED,
        shows=(r"DUE TO TIME LIMIT",),
        cause="The job reached its time limit, and Slurm ended it.",
        remedy=f"raise the limit, #SBATCH --time=D-HH:MM:SS, up to the partition's limit (sinfo -o '%P %l'); {RESUME}",
        certain=True,
    ),
    EvidenceRule(
        id="slurm-preempted",
        entries=CANCELLED,
        shows=(r"DUE TO PREEMPTION",),
        cause="A job of higher priority took the nodes: the partition or quality of service can be preempted.",
        remedy=f"#SBATCH --requeue starts it again later; {RESUME}; or use a partition without preemption",
        certain=True,
    ),
    EvidenceRule(
        id="slurm-node-failure",
        entries=CANCELLED,
        shows=(r"DUE TO NODE FAILURE(?:, SEE SLURMCTLD LOG FOR DETAILS)?",),
        cause="A node of the job failed or no longer responds to Slurm.",
        remedy="sinfo -R shows which one, and why; leave it out (#SBATCH --exclude=NODE) and launch again from the "
        "last "
        "checkpoint",
        certain=True,
    ),
)
