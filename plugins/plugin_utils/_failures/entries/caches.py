# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of caches that ranks or nodes share."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Caches"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-cache",
        title="The cache of a data set is incomplete on this node",
        example="FileNotFoundError: [Errno 2] No such file or directory: "
        "'.cache/huggingface/datasets/.../json-train.arrow'",
        texts=(
            r"FileNotFoundError: \[Errno 2\] Failed to open local file '[^\n]{1,400}(?:\.arrow|\.incomplete)",
            r"FileNotFoundError: \[Errno 2\] No such file or directory: '[^\n]{1,400}(?:\.arrow|\.incomplete|\.par"
            r"quet\.lock|/dataset_info\.json)'",
        ),
        cause="Several ranks or jobs built the cache of a data set at the same time and removed each other's "
        "files, or it was built on another node and is not visible here.",
        remedy="let one rank of each node build it first (with training_args.main_process_first(local=True): "
        "..., or accelerator.local_main_process_first()), the others after a barrier; or build it once "
        "before the job on every node or on a shared drive. Give each job its own HF_DATASETS_CACHE in "
        "launch_environment. Remove the broken one: rm -rf ~/.cache/huggingface/datasets/NAME",
        source="eric-mitchell/direct-preference-optimization#47",
    ),
)
