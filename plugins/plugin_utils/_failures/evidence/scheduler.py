# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of why a scheduler ended a job."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Why the scheduler ended the job"
CANCELLED = ("slurm-cancelled",)
RESUME = "launch again from the last checkpoint, and save more often than once per time limit"
RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="slurm-ranks-not-started",
        entries=CANCELLED,
        shows=(
            r"GLOBAL_RANK: \d{1,6}, MEMBER: \d{1,6}/(?P<size>\d{1,6})\n(?:[ \t]{0,20}\n){0,3}"
            r"(?:slurmstepd|srun): [^\n]{0,200}DUE TO TIME LIMIT",
        ),
        cause=(
            "The ranks that started waited for all {size} ranks to register, and the job reached its time limit. The "
            "missing ranks were never started: the batch script either runs Python directly, which starts it only on "
            "the first node, or starts fewer tasks than Trainer(devices, num_nodes) expects."
        ),
        remedy=(
            "start the script with srun, and use #SBATCH --nodes=NODES and --ntasks-per-node=GPUS as in "
            "Trainer(devices=GPUS, num_nodes=NODES); or let muster start the ranks on all nodes (leave "
            "launch_launcher out)"
        ),
    ),
    EvidenceRule(
        id="slurm-time-limit",
        entries=CANCELLED,
        shows=(r"DUE TO TIME LIMIT",),
        cause="The job reached its time limit, and Slurm ended it.",
        remedy=(
            f"raise the limit with #SBATCH --time=D-HH:MM:SS, up to the partition's limit (sinfo -o '%P %l'); {RESUME}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="killed-in-slurm-job",
        entries=("killed", "host-out-of-memory"),
        shows=(r"/slurmd/job(?P<job>\d{1,12})/slurm_script: line \d{1,6}: {1,3}\d{1,9} Killed\b",),
        cause=(
            "A process of Slurm job {job} was killed, most likely because the job used more host memory than it had "
            "requested: without --mem, Slurm gives a job its default, which is often small, and each rank loads its "
            "own copy of the model."
        ),
        remedy=(
            "request the memory with #SBATCH --mem=0 (all of the node's memory) or --mem=500G; run `sacct -j "
            "{job} -o JobID,State,ReqMem,MaxRSS` to see the limit and what was used. Or use less memory: load "
            "the model on one rank of a node at a time, in bf16 and with low_cpu_mem_usage=True"
        ),
    ),
    EvidenceRule(
        id="slurm-preempted",
        entries=CANCELLED,
        shows=(r"DUE TO PREEMPTION",),
        cause="A higher-priority job took the nodes: jobs in this partition or quality of service can be preempted.",
        remedy=(
            f"use #SBATCH --requeue to have the job start again later; {RESUME}; or use a partition without preemption"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="slurm-node-failure",
        entries=CANCELLED,
        shows=(r"DUE TO NODE FAILURE(?:, SEE SLURMCTLD LOG FOR DETAILS)?",),
        cause="A node of the job failed or is no longer responding to Slurm.",
        remedy=(
            "run sinfo -R to see which node failed, and why; exclude that node (#SBATCH --exclude=NODE) and "
            "launch again from the last checkpoint"
        ),
        certain=True,
    ),
)
