# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nonexistent names in Hugging Face's datasets and PEFT."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Hugging Face datasets and adapters"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-script",
        title="A dataset needs an older version of datasets",
        example="RuntimeError: Dataset scripts are no longer supported, but found superb.py",
        texts=(r"Dataset scripts are no longer supported, but found",),
        cause="The dataset is loaded by a Python script, and datasets 4 and later do not run such scripts.",
        remedy=(
            'add "datasets<4" to the job\'s requirements and run ansible-playbook site.yml --tags python_env; or '
            "use a copy of the dataset in Parquet format, with load_dataset(NAME, "
            'revision="refs/convert/parquet")'
        ),
        source="huggingface/datasets#7693",
    ),
    CatalogueEntry(
        id="dataset-split",
        title="A dataset does not have the requested split",
        example="ValueError: Unknown split \"validation\". Should be one of ['train'].",
        texts=(
            r"Unknown split ['\"][^'\"\n]{1,80}['\"]\. Should be one of",
            r"Bad split: \w{1,40}\. Available splits:",
        ),
        cause=(
            "The script requests a split that the dataset does not have; the message lists the available splits. "
            "Either the dataset has no such split, or only some of its files are on this node or in its cache."
        ),
        remedy=(
            'specify an existing split, or take a part of one with split="train[:5%]" or '
            "dataset.train_test_split(0.05); if files are missing, remove the dataset's cache on each node and "
            "load the dataset again"
        ),
        source="clovaai/donut#57",
    ),
    CatalogueEntry(
        id="adapter-modules",
        title="The model does not have the layers that an adapter names",
        example="ValueError: Target modules ['q_proj', 'v_proj'] not found in the base model.",
        texts=(r"Target modules [^\n]{1,300} not found in the base model",),
        cause=(
            "The names in target_modules are those of a different architecture: models use different names for their "
            "attention layers (q_proj, query_key_value, W_pack, c_attn)."
        ),
        remedy=(
            'run print(model) to see the names; or set target_modules="all-linear" (with LLaMA-Factory, set '
            "lora_target: all)"
        ),
        source="OptimalScale/LMFlow#125",
    ),
    CatalogueEntry(
        id="dataset-cache-filesystem",
        title="datasets is incompatible with fsspec",
        example="NotImplementedError: Loading a dataset cached in a LocalFileSystem is not supported.",
        texts=(
            r"Loading a dataset cached in a LocalFileSystem is not supported",
            r"Invalid pattern: '\*\*' can only be an entire path component",
        ),
        cause=(
            "An old version of datasets is installed together with a newer fsspec, which names local files differently."
        ),
        remedy="upgrade datasets in the job's requirements (2.14.6 or later), or pin fsspec<2023.10, and run "
        "ansible-playbook site.yml --tags python_env",
        source="huggingface/datasets#6352",
    ),
    CatalogueEntry(
        id="tokenizer-file-missing",
        title="A tokenizer's file is missing",
        example="TypeError: not a string",
        texts=(r"TypeError: not a string$",),
        cause=(
            "The path of the tokenizer file (tokenizer.model, spiece.model) is None: the model's directory does "
            "not contain the file, either because the model only has tokenizer.json or because the directory was "
            "not copied completely."
        ),
        remedy=(
            "use AutoTokenizer.from_pretrained(..., use_fast=True), or set --use_fast_tokenizer; otherwise, copy "
            "the missing file into the model's directory on each node"
        ),
        source="huggingface/transformers#29137",
        weak=True,
    ),
    CatalogueEntry(
        id="tokenizer-file-broken",
        title="A tokenizer file is not a SentencePiece model",
        example="RuntimeError: Internal: src/sentencepiece_processor.cc(1101) [model_proto->ParseFromArray(...)]",
        texts=(r"sentencepiece_processor\.cc\(\d{1,5}\)[^\n]{0,20}\[?model_proto->ParseFromArray",),
        cause="The file was not downloaded completely, is a Git LFS pointer of a few lines, or has a different format, "
        "such as a vocabulary in JSON or text.",
        remedy=(
            "on that node, run `ls -l` and `head -c 100` on the tokenizer file, which should be hundreds of kB "
            "in size; download or copy it again with git lfs pull or ansible-playbook stage_data.yml"
        ),
        source="yanqiangmiffy/Chinese-LangChain#42",
    ),
)
