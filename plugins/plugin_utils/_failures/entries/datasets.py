# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mistakes in data sets and tokenizers."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Data sets and tokenizers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-columns",
        title="The files of a data set have different columns",
        example="datasets.table.CastError: Couldn't cast",
        texts=(
            r"datasets\.table\.CastError: Couldn't cast",
            r"ValueError: Couldn't cast$",
            r"\bDatasetGenerationCastError\b",
            r"All the data files must have the same columns",
            r"^because column names don't match",
        ),
        cause="load_dataset reads all files of a data set into one table, and a file has other columns, or "
        "another type in a column, than the first one.",
        remedy="give only files of one kind (data_files=...), or make their columns the same: for JSON, each "
        "key in each line. If the data set was changed, remove its cache: rm -rf "
        "~/.cache/huggingface/datasets/NAME on each node",
        source="ZihanZhaoSJTU/LibriSQA#2",
        recoverable=True,
    ),
    CatalogueEntry(
        id="padding-token-missing",
        title="The tokenizer has no padding token",
        example="ValueError: Asking to pad but the tokenizer does not have a padding token.",
        texts=(r"Asking to pad but the tokenizer does not have a padding token",),
        cause="Batches are padded to one length, and the tokenizers of many causal models (GPT, Llama) have "
        "no token for that.",
        remedy="after loading the tokenizer: tokenizer.pad_token = tokenizer.eos_token",
        source="DachengLi1/LongChat#31",
    ),
    CatalogueEntry(
        id="dataset-empty",
        title="The data set has no examples left",
        example="IndexError: Invalid key: 25030 is out of bounds for size 0",
        texts=(
            r"Invalid key: \d{1,12} is out of bounds for size 0",
            r"num_samples should be a positive integer value, but got num_samples=0",
        ),
        cause="Trainer removed all columns, since none is an argument of the model's forward, as happens "
        "with wrapped models; or the path or a filter left nothing.",
        remedy="TrainingArguments(remove_unused_columns=False) keeps the columns; print len(dataset) and its "
        "column_names before training, on each node",
        source="hiyouga/LlamaFactory#671",
    ),
)
