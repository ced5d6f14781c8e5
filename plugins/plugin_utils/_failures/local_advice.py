# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Advice on failures in clusters that are managed by Slurm or Kubernetes, or whose nodes share a file system."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import TOPICS

MAX_TEXT = 50_000  # number of characters of a log that are searched for signs of a scheduler or a shared file system
TOPIC_OF = {entry.id: topic for topic, entries in TOPICS.items() for entry in entries}


@dataclass(frozen=True)
class Surroundings:
    """A kind of cluster. shows: matches the logs of its jobs. advice: texts by the ID or topic of a catalogue entry."""

    shows: re.Pattern[str]
    advice: dict[str, str]


NETWORK = (
    "In Kubernetes, the Service for the pods must be headless and resolve their names (kubectl get endpoints), "
    "and there must be no NetworkPolicy or proxy sidecar between them (annotation sidecar.istio.io/inject: "
    '"false")'
)
RANKS_SEE_ONE_GPU = (
    "Under Slurm, --gpus-per-task=1 and --gpu-bind show each task only its own GPU, as device 0: use "
    "--gpus-per-node instead, or call torch.cuda.set_device(0), and start as many tasks per node as there are "
    "GPUs (--ntasks-per-node)"
)
SAME_DIRECTORY = (
    "The directory is on a shared file system, where all nodes use the same files: let rank 0 of the whole job, "
    "not one rank per node, prepare, create or remove them while all others wait at a barrier"
)
SHARED_CHECKPOINT = (
    "The directory is on a shared file system, so nothing needs to be copied to other nodes: list it on a node, "
    "and check its name and whether the save finished"
)
SLURM = Surroundings(
    re.compile(r"\bsrun\b|\bslurmstepd\b|\bSLURM_\w|\bsbatch\b"),
    {
        "Connections between ranks": (
            "Under Slurm, take the first node from the job's own list with MASTER_ADDR=$(scontrol show hostnames "
            "$SLURM_JOB_NODELIST | head -n 1), and choose a MASTER_PORT that no other job uses"
        ),
        "Host names": (
            "Under Slurm, `scontrol show hostnames $SLURM_JOB_NODELIST` lists the host names that the nodes can resolve"
        ),
        "Host memory": (
            "Under Slurm, the limit is what the job requested: raise --mem or --mem-per-gpu, or set --mem=0 to "
            "request all of a node's memory. Run `sacct -j JOB -o MaxRSS,ReqMem` to see the memory used and "
            "requested"
        ),
        "killed": (
            "Under Slurm, the limit is what the job requested: raise --mem or --mem-per-gpu; run `sacct -j JOB -o "
            "State,MaxRSS,ReqMem` to see whether it was reached"
        ),
        "threads-exhausted": "Under Slurm, request cores for the DataLoader workers with --cpus-per-task",
        "rdma-locked-memory": (
            "Under Slurm, tasks inherit slurmd's limit: set LimitMEMLOCK=infinity in its systemd unit"
        ),
        "invalid-device-ordinal": RANKS_SEE_ONE_GPU,
        "nccl-duplicate-gpu": RANKS_SEE_ONE_GPU,
        "nccl-invalid-usage": RANKS_SEE_ONE_GPU,
        "nccl-no-peer-access": (
            "Under Slurm, --gpus-per-task and --gpu-bind hide the GPUs of a node from each other: use "
            "--gpus-per-node instead"
        ),
        "no-gpu": "Under Slurm, a job sees only the GPUs that it requested: use --gpus-per-node=N or --gres=gpu:N",
        "torch-without-cuda": (
            "Under Slurm, make sure that the environment is the one for the compute nodes, not one that was built on "
            "a login node without GPUs"
        ),
        "rank-variables-missing": "Under Slurm, set RANK=$SLURM_PROCID, LOCAL_RANK=$SLURM_LOCALID and "
        "WORLD_SIZE=$SLURM_NTASKS in each task, or let srun start one torchrun per node (--ntasks-per-node=1)",
        "module-missing": "Under Slurm, activate the environment in the batch script (module load, source activate): "
        "tasks do not read ~/.bashrc",
        "program-not-found": "Under Slurm, activate the environment in the batch script (module load, source "
        "activate): "
        "tasks do not read ~/.bashrc",
    },
)
KUBERNETES = Surroundings(
    re.compile(
        r"\.svc\.cluster\.local|\bKUBERNETES_|\bkubeflow\b|\bPyTorchJob\b|\bMPIJob\b|\bkubelet\b|\bkubectl\b|"
        r"[\w-]-(?:master|launcher)-\d|/var/run/secrets/kubernetes"
    ),
    {
        "Connections between ranks": NETWORK,
        "Host names": NETWORK,
        "mpi-network": NETWORK,
        "mpi-daemon-missing": NETWORK,
        "nccl-connection-failed": NETWORK,
        "nccl-system-error": NETWORK,
        "Shared memory (/dev/shm)": "In Kubernetes, mount an emptyDir with medium: Memory at /dev/shm in the pod",
        "bus-error": "In Kubernetes, mount an emptyDir with medium: Memory at /dev/shm in the pod",
        "Host memory": (
            "In Kubernetes, raise the pod's resources.limits.memory (kubectl describe pod shows OOMKilled)"
        ),
        "killed": "In Kubernetes, run `kubectl describe pod` to see whether the pod was OOMKilled or evicted",
        "no-gpu": "In Kubernetes, the container must set nvidia.com/gpu in resources.limits",
        "rdma-locked-memory": "In Kubernetes, the pod needs the IPC_LOCK capability",
        "efa-device-missing": (
            "In Kubernetes, the pod must set vpc.amazonaws.com/efa in resources.limits, and the EFA device "
            "plugin must be running on the node"
        ),
    },
)
SHARED_DRIVE = Surroundings(
    re.compile(r"(?<![\w/])/(?:fsx|lustre|gpfs|beegfs|weka|nfs|efs|mnt/(?:nfs|lustre|efs|fsx|shared)|shared)/"),
    {
        "Caches": SAME_DIRECTORY,
        "checkpoint-directory-race": SAME_DIRECTORY,
        "checkpoint-file-missing": SHARED_CHECKPOINT,
        "checkpoint-on-one-node": SHARED_CHECKPOINT,
        "checkpoint-not-found": SHARED_CHECKPOINT,
        "file-missing": (
            "The path is on a shared file system, so the nodes see the same files: check the path itself, and "
            "whether another rank or job removes the file or is still writing it"
        ),
    },
)
ALL = (SLURM, KUBERNETES, SHARED_DRIVE)


def local_advice(entry: str, lines: Iterable[str]) -> list[str]:
    """Return advice on a failure for each kind of cluster that a log points to: one sentence each, without a final
    period.

    Args:
        entry: The id of the failure's entry in the catalogue.
        lines: The lines of its error and log.
    """
    text = "\n".join(lines)[-MAX_TEXT:]
    topic = TOPIC_OF.get(entry, "")
    texts = []
    for surroundings in ALL:
        advice = surroundings.advice.get(entry, surroundings.advice.get(topic))
        if advice is not None and surroundings.shows.search(text):
            texts.append(advice)
    return texts
