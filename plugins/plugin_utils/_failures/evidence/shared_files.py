# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about files that one rank or node writes and others read, either on one node's disk or on a shared drive."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.files import MISSING, RANK_0_FIRST
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Files written by one rank or node"
NOT_HERE = (*MISSING, "dataset-cache-missing", "dataset-cache-raced", "checkpoint-file-missing", "checkpoint-not-found")
# What a job writes and later reads, by path.
MADE = (
    r"(?:/datasets?/[^'\"\n]{1,200}\.(?:arrow|npy|bin|idx|json|lock|parquet)|/(?:cached?|preprocessed|processed|packed|"
    r"tokenized|features)[/_-][^'\"\n]{1,200}|/cache[\w-]{0,30}/[^'\"\n]{1,200}|[^'\"\n]{1,200}cache[^'\"/\n]{0,60}\.\w{1,8}|"
    r"/\.cache/[^'\"\n]{1,200})"
)
SHARED = r"/(?:mnt|nfs|shared?|lustre|gpfs|fsx|efs|scratch|work|projects?|beegfs|ceph|weka|data\d?|public|vol\w{0,20})/"
LOCAL = r"/(?:root|tmp|var/tmp|local\w{0,20}|dev/shm|raid|nvme\w{0,10}|opt|workspace)/|/home/[\w.-]{1,60}/\.cache/"
# Checkpoints and compiler caches, which other rules explain.
OTHER_CACHES = r"global_step|checkpoint-\d|[./]triton/|torchinductor_|torch_extensions"
# The ranks of the first files in DeepSpeed's list of missing files.
PART = r"[^\]\n]{{0,200}}?_rank_(?P<rank_{}>\d{{1,5}})_mp_rank"
PARTS = PART.format(0) + "".join(f"(?:{PART.format(number)}" for number in (1, 2, 3)) + ")?" * 3


def has_single_node(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the run has only one node, according to its plan."""
    return len(facts.slots) == 1


def has_several_nodes(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the run may have several nodes."""
    return len(facts.slots) != 1


def has_some_parts(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether a list of missing checkpoint parts omits some parts, which means that these exist on this node."""
    numbers = [int(value) for name, value in sorted(groups.items()) if name.startswith("rank_")]
    return numbers != list(range(len(numbers)))


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="made-file-raced",
        entries=NOT_HERE,
        shows=(rf"'(?P<path>(?={SHARED})[^'\"\n]{{0,200}}{MADE})'",),
        unless=OTHER_CACHES,
        cause=(
            "On a drive that all nodes share, several nodes or ranks prepared {path} at the same time: one moved "
            "or removed files that another had yet to read (a race)."
        ),
        remedy="let only rank 0 of the whole job prepare it, while all others wait at a barrier "
        "(data_shared_file_system: true in LLaMA-Factory, main_process_first(local=False) with the Trainer); or "
        "prepare "
        "it once before the job. If the drive is not shared after all, each node needs its own copy",
        condition=has_several_nodes,
    ),
    EvidenceRule(
        id="made-file-on-first-node",
        entries=NOT_HERE,
        shows=(rf"'(?P<path>(?={LOCAL})[^'\"\n]{{0,200}}{MADE})'",),
        unless=OTHER_CACHES,
        cause=(
            "Rank 0 prepares {path} on its own node's disk, and this node does not have it: the directory is not on "
            "a drive that all nodes share."
        ),
        remedy=(
            "put the cache on a shared drive at the same path on all nodes (set HF_HOME, HF_DATASETS_CACHE, "
            "NEMO_HOME or the script's option in launch_environment); let the first rank of each node prepare it "
            "(LOCAL_RANK 0); or copy it with ansible-playbook stage_data.yml"
        ),
        condition=has_several_nodes,
    ),
    EvidenceRule(
        id="made-file-raced-on-node",
        entries=NOT_HERE,
        shows=(rf"'(?P<path>[^'\"\n]{{0,200}}{MADE})'",),
        unless=OTHER_CACHES,
        cause=(
            "{path} is created by one rank of the node, and this rank read it too early, or several ranks "
            "created it at the same time (a race)."
        ),
        remedy=RANK_0_FIRST,
        condition=has_single_node,
    ),
    EvidenceRule(
        id="shared-memory-exists",
        entries=("directory-exists", "checkpoint-directory-race"),
        shows=(r"_posixshmem\.shm_open|SharedMemory\(", r"File exists: '(?P<name>[^'\n]{1,200})'"),
        cause=(
            "The shared memory object {name} (in /dev/shm) already exists: an earlier run that was killed left "
            "it, or several ranks of the node are creating it at the same time."
        ),
        remedy=(
            "remove the leftover objects while no job is running: run `rm -f /dev/shm{name}` on that node, and for "
            "MosaicML's streaming also `python -c 'import streaming; "
            "streaming.base.util.clean_stale_shared_memory()'`. If it happens again, upgrade the package: newer "
            "versions let one rank create the object first"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="shared-memory-stale",
        entries=("package-refused", "package-failed", "raised-by-script", "setting-refused"),
        shows=(r"clean_stale_shared_memory|Reused local directory",),
        cause=(
            "Shared memory that MosaicML's streaming created is left over from an earlier run that was killed, "
            "so the dataset's local directory appears to be in use; or two datasets in this job have the same "
            "local directory."
        ),
        remedy=(
            "run `python -c 'import streaming; streaming.base.util.clean_stale_shared_memory()'` on that node "
            "while no job is running (or remove the leftover objects in /dev/shm); to end processes that an "
            "earlier run left behind, run ansible-playbook stop.yml. Otherwise, give each dataset its own `local`"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="checkpoint-parts-elsewhere",
        entries=("checkpoint-of-other-ranks", "raised-by-script", "asserted-by-script"),
        shows=(rf"The following zero checkpoints paths are missing: \[{PARTS}",),
        cause=(
            "Each node has only the parts of the checkpoint that its own ranks wrote, on its own disk: some "
            "parts exist here, but those from other ranks are missing. DeepSpeed reads all parts on every node."
        ),
        remedy=(
            'save to a drive that all nodes share (ansible-playbook site.yml --tags data), or set "checkpoint": '
            '{{"use_node_local_storage": true}} in DeepSpeed\'s configuration, so that each rank reads only its '
            "own part; for this checkpoint, copy the files from all nodes into one directory on each node"
        ),
        condition=has_some_parts,
        certain=True,
    ),
)
