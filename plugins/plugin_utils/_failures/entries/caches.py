# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of caches that several ranks or nodes share."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Caches"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-cache-raced",
        title="Several processes are building the same dataset cache",
        example="FileNotFoundError: [Errno 2] No such file or directory: '.../dataset_info.json'",
        texts=(
            r"Failed to open local file '[^'\n]{0,300}\.incomplete/",
            r"No such file or directory: '[^'\n]{0,300}(?:\.incomplete|/dataset_info\.json)",
            r"FileExistsError: [^\n]{0,300}/huggingface/datasets/",
            r"No such file or directory: '[^'\n]{0,300}-of-NNNNN\.arrow'",
            r"^ {0,8}(?:\[rank\d{1,7}\]: {1,8})?"
            r"(?:os\.chmod\(cache_file_name|shutil\.move\(tmp_file\.name, cache_file_name)",
        ),
        cause=(
            "Several ranks or jobs are preparing the same dataset in one cache at the same time, and one of them "
            "removes or moves files that another is still writing."
        ),
        remedy=(
            "prepare the dataset in one process before the job; or let one rank do it while the others wait at a "
            "barrier. If the nodes share the cache, use one rank of the whole job; otherwise, use one rank per node "
            "(with the Trainer, training_args.main_process_first(local=False) or local=True, respectively). Jobs "
            "that run at the same time need separate caches, so set HF_DATASETS_CACHE in launch_environment"
        ),
        source="huggingface/datasets#5412",
        recoverable=True,
        refines=("dataset-cache-missing",),
    ),
    CatalogueEntry(
        id="dataset-cache-missing",
        title="The dataset cache is on one node only",
        example="FileNotFoundError: [Errno 2] Failed to open local file "
        "'.../cache-66a5cd42fef01eaa_00000_of_00032.arrow'",
        texts=(
            r"No such file or directory: '[^'\n]{0,300}(?:/cache-[0-9a-f]{4,20}[\w-]{0,40}\.arrow|"
            r"/index-cache/|\.cache/huggingface/datasets/)",
            r"Failed to open local file '[^'\n]{0,300}\.arrow'",
            r"No such file or directory: '[^'\n]{0,300}GPTDataset[\w-]{0,60}\.(?:npy|txt)",
            r"Memory Map for [^\n]{1,300} is not found, missing one or more of files",
        ),
        cause=(
            "A file of a prepared dataset is missing from the cache. If each node has its own cache, only the node "
            "that prepared the data has the file, because a single rank of the whole job prepares it. If the nodes "
            "share the cache, several ranks prepare the data at the same time, and one moves or removes files that "
            "another needs."
        ),
        remedy=(
            "if the cache is on each node's own disk, have one rank per node prepare the data first (local main "
            "process first); if the nodes share the cache, have one rank of the whole job do it (main process "
            "first), or prepare it in a single-process run before the job. To see which kind of cache it is, run df "
            "DIRECTORY on the node. To copy a prepared cache to all nodes, run ansible-playbook stage_data.yml; for "
            "Megatron, set --data-cache-path"
        ),
        source="InternLM/xtuner#251",
        weak=True,
        recoverable=True,
    ),
)
