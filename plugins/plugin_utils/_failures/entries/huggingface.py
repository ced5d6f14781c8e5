# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in Hugging Face's datasets and PEFT that do not exist."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Hugging Face datasets and adapters"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-script",
        title="A data set needs an older release of datasets",
        example="RuntimeError: Dataset scripts are no longer supported, but found superb.py",
        texts=(r"Dataset scripts are no longer supported, but found",),
        cause="The data set is loaded by a Python script, which datasets 4 and later do not run.",
        remedy='add "datasets<4" to the job\'s requirements and run ansible-playbook site.yml --tags python_env; or '
        "use a "
        'copy of the data set in Parquet: load_dataset(NAME, revision="refs/convert/parquet")',
        source="huggingface/datasets#7693",
    ),
    CatalogueEntry(
        id="dataset-split",
        title="A data set does not have the split",
        example="ValueError: Unknown split \"validation\". Should be one of ['train'].",
        texts=(
            r"Unknown split ['\"][^'\"\n]{1,80}['\"]\. Should be one of",
            r"Bad split: \w{1,40}\. Available splits:",
        ),
        cause="The script asks for a split that the data set does not have: the message lists those it has. The data "
        "set "
        "has no such part, or only some of its files are on this node or in its cache.",
        remedy='name an existing split, or take a part of one: split="train[:5%]", dataset.train_test_split(0.05); if '
        "files are missing, remove the data set's cache on each node and load it again",
        source="clovaai/donut#57",
    ),
    CatalogueEntry(
        id="adapter-modules",
        title="The model does not have the layers that an adapter names",
        example="ValueError: Target modules ['q_proj', 'v_proj'] not found in the base model.",
        texts=(r"Target modules [^\n]{1,300} not found in the base model",),
        cause="The names in target_modules are those of another architecture: models name their attention layers "
        "differently (q_proj, query_key_value, W_pack, c_attn).",
        remedy='print(model) shows the names; or target_modules="all-linear" (with LLaMA-Factory: lora_target: all)',
        source="OptimalScale/LMFlow#125",
    ),
)
