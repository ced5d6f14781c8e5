# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of caches that ranks or nodes share."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Caches"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-cache-raced",
        title="Several processes build the same data set cache",
        example="FileNotFoundError: [Errno 2] No such file or directory: '.../dataset_info.json'",
        texts=(
            r"Failed to open local file '[^'\n]{0,300}\.incomplete/",
            r"No such file or directory: '[^'\n]{0,300}(?:\.incomplete|/dataset_info\.json)",
            r"FileExistsError: [^\n]{0,300}/huggingface/datasets/",
            r"No such file or directory: '[^'\n]{0,300}-of-NNNNN\.arrow'",
        ),
        cause="Several ranks or jobs prepare the same data set in one cache at the same time, and one removes "
        "what another is still writing.",
        remedy="prepare the data set in one process before the job, or let one rank of each node load it first "
        "and the others wait at a barrier (with the Trainer: training_args.main_process_first()); jobs "
        "that run at the same time need their own cache: HF_DATASETS_CACHE in launch_environment",
        source="huggingface/datasets#5412",
        recoverable=True,
    ),
    CatalogueEntry(
        id="dataset-cache-missing",
        title="The data set cache is on one node only",
        example="FileNotFoundError: [Errno 2] Failed to open local file "
        "'.../cache-66a5cd42fef01eaa_00000_of_00032.arrow'",
        texts=(
            r"No such file or directory: '[^'\n]{0,300}(?:/cache-[0-9a-f]{4,20}[\w-]{0,40}\.arrow|"
            r"/index-cache/|\.cache/huggingface/datasets/)",
            r"Failed to open local file '[^'\n]{0,300}\.arrow'",
            r"No such file or directory: '[^'\n]{0,300}GPTDataset[\w-]{0,60}\.(?:npy|txt)",
        ),
        cause="The cache of a prepared data set exists only on the node that built it: the nodes share no disk,"
        " and only one rank of the whole job prepares the data.",
        remedy="let one rank of each node prepare it before the others (local main process first), or put the "
        "cache on a shared drive that all nodes mount (HF_HOME in launch_environment; Megatron: "
        "--data-cache-path); or copy it to all nodes: ansible-playbook stage_data.yml",
        source="InternLM/xtuner#251",
        recoverable=True,
    ),
)
