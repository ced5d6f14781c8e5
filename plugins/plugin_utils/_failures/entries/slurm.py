# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Error messages of Slurm and of MUNGE, with which Slurm nodes authenticate each other."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Slurm"
# Sets the key and the configuration of a cluster that the role slurm has set up.
REPAIR = "ansible-playbook site.yml --tags slurm -e slurm_enabled=true"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="munge-not-running",
        title="MUNGE does not run on this node",
        example='Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        texts=(
            r"Munge encode failed: (?:Failed|Unable) to (?:access|connect to) \"",
            r"munge: Error: Failed to (?:access|connect to) \"",
        ),
        cause="The service munge, with which commands of Slurm prove who calls them, is stopped or failed to start. It "
        "refuses a key, or a directory above it, that others can write to or read.",
        remedy="sudo systemctl restart munge; if it fails, `sudo journalctl -u munge -n 20` says why. On nodes that "
        f"muster has set up: {REPAIR}",
        source="dun/munge#118",
    ),
    CatalogueEntry(
        id="munge-clock",
        title="The clocks of two nodes of Slurm differ",
        example="Munge decode failed: Expired credential",
        texts=(
            r"Munge decode failed: (?:Expired|Rewound) credential",
            r"Job credential expired",
        ),
        cause="A credential of MUNGE or Slurm is valid for some minutes. The clock of the node that made it differs by "
        "more than that from the clock of the node that checks it.",
        remedy="ansible-playbook preflight.yml shows the difference. Correct it with `sudo timedatectl set-ntp true` "
        "on each node",
        source="stackhpc/ansible-slurm-appliance#114",
    ),
    CatalogueEntry(
        id="munge-key-differs",
        title="Two nodes of Slurm have different MUNGE keys",
        example="sinfo: error: Zero Bytes were transmitted or received",
        texts=(
            r"Munge decode failed: Invalid credential",
            r"Zero Bytes were transmitted or received",
        ),
        cause="The controller rejects whatever this node sends, since /etc/munge/munge.key differs between them, as "
        "after a reinstallation. It closes the connection without a reply.",
        remedy=f"{REPAIR} gives all nodes the key of the controller. By hand: copy the key, owned by munge with mode "
        "0400, then restart munge and slurmd",
        source="clustervision/trinity#477",
    ),
    CatalogueEntry(
        id="slurm-controller-away",
        title="The controller of Slurm cannot be reached",
        example="sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        texts=(r"Unable to contact slurm controller",),
        cause="slurmctld is stopped or restarts, its node is down, or its port (6817) is closed to this node. Running "
        "jobs go on.",
        remedy="`scontrol ping` shows which node it is; there: sudo systemctl restart slurmctld, and `sudo journalctl "
        "-u slurmctld -n 20` for the reason. Ports: ansible-playbook site.yml --tags firewall",
        source="ArjunaCluster/ArjunaUsers#92",
        recoverable=True,
    ),
    CatalogueEntry(
        id="slurm-account-invalid",
        title="Slurm does not accept the account, or not in this partition",
        example="sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
        "specified",
        texts=(r"Invalid account or account/partition combination specified",),
        cause="The cluster has accounting, and the user has no account, another one, or none that may use this "
        "partition.",
        remedy="`sacctmgr show associations user=$USER format=account,partition,qos` lists yours: set "
        "launch_slurm_account and launch_slurm_partition accordingly",
        source="antadde/N-SDM#4",
    ),
    CatalogueEntry(
        id="slurm-limit-exceeded",
        title="A limit of Slurm does not allow the job",
        example="sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
        "user's size and/or time limits)",
        texts=(r"Job violates accounting/QOS policy",),
        cause="The user, account or quality of service has a maximum of jobs, nodes, GPUs or time, and this job is "
        "beyond it. The line before it often names the limit, such as QOSMaxSubmitJobPerUserLimit.",
        remedy="`sacctmgr show qos format=name,MaxJobsPU,MaxSubmitPU,MaxTRESPU,MaxWall` lists the limits: launch on "
        "fewer nodes (-e nnodes=N), for less time (launch_slurm_time), or with another launch_slurm_qos",
        source="mlr-org/batchtools#199",
    ),
    CatalogueEntry(
        id="slurm-nodes-unavailable",
        title="No node of Slurm could ever run the job",
        example="sbatch: error: Batch job submission failed: Requested node configuration is not available",
        texts=(r"Requested node configuration is not available",),
        cause="The partition has no nodes with as many GPUs, CPUs or as much memory as the job requests, or too few of "
        "them; or the chosen nodes are in another partition.",
        remedy="`sinfo --Node --format='%N %P %c %m %G %T'` lists what nodes have: set launch_slurm_partition, and "
        "launch_slurm_gres to what they offer",
        source="ArjunaCluster/ArjunaUsers#112",
    ),
    CatalogueEntry(
        id="slurm-gres-unknown",
        title="Slurm does not know the GPUs that the job requests",
        example="sbatch: error: Invalid generic resource (gres) specification",
        texts=(r"Invalid generic resource \(gres\) specification",),
        cause="The cluster has no generic resource of this name or type: its configuration lists no GPUs, or "
        "lists them under another type.",
        remedy="`sinfo --format='%N %G'` shows how GPUs are listed, such as gpu:h100:8: set launch_slurm_gres "
        "accordingly, or to none if they are not listed at all",
        source="awslabs/awsome-distributed-ai#196",
    ),
    CatalogueEntry(
        id="slurm-step-too-large",
        title="A step of Slurm requests more than its job has",
        example="srun: error: Unable to create step for job 65: More processors requested than permitted",
        texts=(r"More processors requested than permitted",),
        cause="srun asks for more tasks or CPUs than the job was given, often through variables that it inherits from "
        "a surrounding job, such as SLURM_NTASKS or SLURM_CPUS_PER_TASK.",
        remedy="in a script of your own, request them in #SBATCH, too; do not call srun within the job that muster "
        "launches, whose ranks it starts itself",
        source="E3SM-Project/scream#2112",
    ),
    CatalogueEntry(
        id="slurm-credential-invalid",
        title="A node does not accept the job that the controller of Slurm sends",
        example="srun: error: Task launch for StepId=13.0 failed on node gpu2: Invalid job credential",
        texts=(r"Task launch for \S{1,40} failed on node \S{1,255}: Invalid job credential",),
        cause="The node cannot verify the credential: its MUNGE key is another one, its slurmd has an outdated "
        "configuration, or the job's user has another number there.",
        remedy=f"`id` must print the same numbers on all nodes. Then {REPAIR}; the node's /var/log/slurm/slurmd.log "
        "has the details",
        source="NVIDIA/deepops#1179",
        weak=True,
    ),
)
