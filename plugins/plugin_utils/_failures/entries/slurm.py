# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Error messages from Slurm, and from MUNGE, which Slurm nodes use to authenticate each other."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Slurm"
# Sets the key and the configuration of a cluster that was set up by the role slurm.
REPAIR = "ansible-playbook site.yml --tags slurm -e slurm_enabled=true"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="munge-not-running",
        title="MUNGE is not running on this node",
        example='Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        texts=(
            r"Munge encode failed: (?:Failed|Unable) to (?:access|connect to) \"",
            r"munge: Error: Failed to (?:access|connect to) \"",
        ),
        cause=(
            "The munge service, which authenticates Slurm commands, is stopped or failed to start. It rejects a key "
            "that others can read or write, or that is below a directory that others can write to."
        ),
        remedy=(
            "run sudo systemctl restart munge; if that fails, run `sudo journalctl -u munge -n 20` to see why. On "
            f"nodes that muster has set up, run {REPAIR}"
        ),
        source="dun/munge#118",
    ),
    CatalogueEntry(
        id="munge-clock",
        title="The clocks of two Slurm nodes differ",
        example="Munge decode failed: Expired credential",
        texts=(
            r"Munge decode failed: (?:Expired|Rewound) credential",
            r"Job credential expired",
        ),
        cause="A MUNGE or Slurm credential is valid for a few minutes. The clock of the node that issued it differs by "
        "more than that from the clock of the node that checks it.",
        remedy=(
            "run ansible-playbook preflight.yml to see the difference. Correct it with `sudo timedatectl set-ntp "
            "true` on each node"
        ),
        source="stackhpc/ansible-slurm-appliance#114",
    ),
    CatalogueEntry(
        id="munge-key-differs",
        title="Two Slurm nodes have different MUNGE keys",
        example="sinfo: error: Zero Bytes were transmitted or received",
        texts=(
            r"Munge decode failed: Invalid credential",
            r"Zero Bytes were transmitted or received",
        ),
        cause=(
            "The controller rejects all messages from this node because their /etc/munge/munge.key files differ, for "
            "example after a reinstallation. It closes the connection without a reply."
        ),
        remedy=(
            f"run {REPAIR} to copy the controller's key to all nodes. To do this by hand, copy the key, make "
            "munge its owner and set its mode to 0400, then restart munge and slurmd"
        ),
        source="clustervision/trinity#477",
    ),
    CatalogueEntry(
        id="slurm-controller-away",
        title="The Slurm controller cannot be reached",
        example="sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        texts=(r"Unable to contact slurm controller",),
        cause="slurmctld is stopped or restarting, its node is down, or its port (6817) is closed to this node. "
        "Running jobs continue.",
        remedy=(
            "run `scontrol ping` to see the name of the controller's node; on that node, run sudo systemctl "
            "restart slurmctld, and run `sudo journalctl -u slurmctld -n 20` to see the reason. To open ports, "
            "run ansible-playbook site.yml --tags firewall"
        ),
        source="ArjunaCluster/ArjunaUsers#92",
        recoverable=True,
    ),
    CatalogueEntry(
        id="slurm-account-invalid",
        title="Slurm rejects the account, either altogether or for this partition",
        example="sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
        "specified",
        texts=(r"Invalid account or account/partition combination specified",),
        cause=(
            "The cluster uses accounting, and the user has no account, a different account, or no account that may "
            "use this partition."
        ),
        remedy=(
            "run `sacctmgr show associations user=$USER format=account,partition,qos` to list your accounts, and "
            "set launch_slurm_account and launch_slurm_partition accordingly"
        ),
        source="antadde/N-SDM#4",
    ),
    CatalogueEntry(
        id="slurm-limit-exceeded",
        title="The job exceeds a Slurm limit",
        example="sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
        "user's size and/or time limits)",
        texts=(r"Job violates accounting/QOS policy",),
        cause="The user, account or quality of service has a maximum number of jobs, nodes or GPUs, or a maximum time, "
        "and this job exceeds it. The previous line often names the limit, such as QOSMaxSubmitJobPerUserLimit.",
        remedy=(
            "run `sacctmgr show qos format=name,MaxJobsPU,MaxSubmitPU,MaxTRESPU,MaxWall` to list the limits, then "
            "launch on fewer nodes (-e nnodes=N), for less time (launch_slurm_time), or with another launch_slurm_qos"
        ),
        source="mlr-org/batchtools#199",
    ),
    CatalogueEntry(
        id="slurm-nodes-unavailable",
        title="No Slurm nodes can ever run the job",
        example="sbatch: error: Batch job submission failed: Requested node configuration is not available",
        texts=(r"Requested node configuration is not available",),
        cause="The partition has no nodes, or too few, with as many GPUs and CPUs or as much memory as the job "
        "requests; or the chosen nodes are in a different partition.",
        remedy=(
            "run `sinfo --Node --format='%N %P %c %m %G %T'` to list the nodes' resources, and set "
            "launch_slurm_partition and launch_slurm_gres accordingly"
        ),
        source="ArjunaCluster/ArjunaUsers#112",
    ),
    CatalogueEntry(
        id="slurm-gres-unknown",
        title="Slurm does not recognize the GPUs that the job requests",
        example="sbatch: error: Invalid generic resource (gres) specification",
        texts=(r"Invalid generic resource \(gres\) specification",),
        cause="The cluster has no generic resource of this name or type: its configuration does not list the GPUs, or "
        "lists them under a different type.",
        remedy=(
            "run `sinfo --format='%N %G'` to see how GPUs are listed, such as gpu:h100:8, and set launch_slurm_gres "
            "accordingly, or to none if they are not listed"
        ),
        source="awslabs/awsome-distributed-ai#196",
    ),
    CatalogueEntry(
        id="slurm-step-too-large",
        title="A Slurm step requests more than its job has",
        example="srun: error: Unable to create step for job 65: More processors requested than permitted",
        texts=(r"More processors requested than permitted",),
        cause=(
            "srun requests more tasks or CPUs than the job has, often through variables inherited from an enclosing "
            "job, such as SLURM_NTASKS or SLURM_CPUS_PER_TASK."
        ),
        remedy=(
            "in your own batch script, also request them with #SBATCH; do not call srun within a job that muster "
            "launches, since muster starts its ranks itself"
        ),
        source="E3SM-Project/scream#2112",
    ),
    CatalogueEntry(
        id="slurm-credential-invalid",
        title="A node does not accept the job that the Slurm controller sends",
        example="srun: error: Task launch for StepId=13.0 failed on node gpu2: Invalid job credential",
        texts=(r"Task launch for \S{1,40} failed on node \S{1,255}: Invalid job credential",),
        cause="The node cannot verify the credential: it has a different MUNGE key, its slurmd has an outdated "
        "configuration, or the job's user has a different UID on the node.",
        remedy=(
            f"check that `id` prints the same numbers on all nodes. Then run {REPAIR}; see /var/log/slurm/slurmd.log "
            "on the node for details"
        ),
        source="NVIDIA/deepops#1179",
        weak=True,
    ),
    CatalogueEntry(
        id="slurm-container-not-started",
        title="pyxis cannot start the job's container",
        example="slurmstepd: error: pyxis: failed to import docker image",
        texts=(
            r"pyxis: failed to import docker image",
            r"pyxis: couldn't start container",
            r"pyxis: container start failed with error code",
        ),
        cause=(
            "Slurm's container plugin (pyxis, enroot) could not fetch, unpack or start the image; enroot's log "
            "lines below say which. Common causes are a .sqsh path that does not begin with / or ./, no access "
            "to the registry, no space or no permission in enroot's directories, or an image without a shell."
        ),
        remedy=(
            "import the image once with `enroot import` and pass its absolute path; for private registries, put "
            "the credentials into ~/.config/enroot/.credentials; make sure that ENROOT_CACHE_PATH and "
            "ENROOT_DATA_PATH are writable and have space; for unusual images, use --no-container-entrypoint"
        ),
        source="NVIDIA/pyxis#127",
        weak=True,
    ),
    CatalogueEntry(
        id="slurm-tasks-list",
        title="The script treats Slurm's task list as a number",
        example="ValueError: invalid literal for int() with base 10: '1(x2)'",
        texts=(r"invalid literal for int\(\) with base 10: '(?:\d{1,5}(?:\(x\d{1,5}\))?,?){1,40}\(x\d{1,5}\)'",),
        cause=(
            "For several nodes, Slurm writes the tasks per node as a list: SLURM_TASKS_PER_NODE=1(x2) means one "
            "task on each of two nodes. The script, or a package that it uses, expects a single number."
        ),
        remedy=(
            "export SLURM_TASKS_PER_NODE=N and SLURM_STEP_TASKS_PER_NODE=N with the number of tasks per node "
            "before starting the script, or let the script read SLURM_NTASKS_PER_NODE (#SBATCH "
            "--ntasks-per-node=N); with torchrun, read the number from LOCAL_WORLD_SIZE"
        ),
        source="sehoffmann/dmlcloud#39",
    ),
    CatalogueEntry(
        id="slurm-options-exclusive",
        title="Two Slurm options are mutually exclusive",
        example="srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        texts=(r"(?:srun|sbatch|salloc): (?:fatal|error): [^\n]{1,160} (?:are|is) mutually exclusive",),
        cause=(
            "The job requests memory (or GPUs, or tasks) in two ways. Often the second request is not in the "
            "command but in a variable: srun inside an allocation inherits SLURM_MEM_PER_NODE and similar "
            "variables from the allocation."
        ),
        remedy=(
            "run unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE before srun, and keep only one of "
            "--mem, --mem-per-cpu and --mem-per-gpu"
        ),
        source="snakemake/snakemake#2912",
    ),
    CatalogueEntry(
        id="slurm-first-task-ended",
        title="srun ended the tasks after one of them had ended",
        example="srun: First task exited 30s ago",
        texts=(r"srun: First task exited \d{1,6}s ago",),
        cause=(
            "One task of the step ended before the others, successfully or not, and srun ended the others once "
            "its wait time had passed (--wait, or the cluster's WaitTime)."
        ),
        remedy=(
            "read the log of the task named in the line `task N: exited` to see why it ended. If it had "
            "finished, use srun --wait=0 to let the others continue; if it failed, use srun --kill-on-bad-exit=1 "
            "to end all of them immediately"
        ),
        source="NatLabRockies/torc#318",
        refines=("slurm-cancelled", "killed"),
    ),
)
