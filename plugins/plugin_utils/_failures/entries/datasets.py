# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors in datasets and tokenizers."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Data sets and tokenizers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="dataset-columns",
        title="The files of a dataset have different columns",
        example="datasets.table.CastError: Couldn't cast",
        texts=(
            r"datasets\.table\.CastError: Couldn't cast",
            r"ValueError: Couldn't cast$",
            r"DatasetGenerationCastError\b",
            r"All the data files must have the same columns",
            r"^because column names don't match",
        ),
        cause=(
            "load_dataset reads all files of a dataset into one table, and one file's columns or column types differ "
            "from those of the first file."
        ),
        remedy=(
            "pass only files of one kind (data_files=...), or give all files the same columns (for JSON, include "
            "every key in every line). If the dataset was changed, run rm -rf ~/.cache/huggingface/datasets/NAME "
            "on each node to remove its cache"
        ),
        source="ZihanZhaoSJTU/LibriSQA#2",
        recoverable=True,
    ),
    CatalogueEntry(
        id="padding-token-missing",
        title="The tokenizer has no padding token",
        example="ValueError: Asking to pad but the tokenizer does not have a padding token.",
        texts=(r"Asking to pad but the tokenizer does not have a padding token",),
        cause=(
            "The samples in a batch are padded to the same length, but the tokenizers of many causal models "
            "(GPT, Llama) have no padding token."
        ),
        remedy="after loading the tokenizer, set tokenizer.pad_token = tokenizer.eos_token",
        source="DachengLi1/LongChat#31",
    ),
    CatalogueEntry(
        id="dataset-empty",
        title="The dataset has no examples left",
        example="IndexError: Invalid key: 25030 is out of bounds for size 0",
        texts=(
            r"Invalid key: \d{1,12} is out of bounds for size 0",
            r"num_samples should be a positive integer value, but got num_samples=0",
        ),
        cause=(
            "Either the Trainer removed all columns, because none of them is an argument of the model's forward "
            "method, which is common with wrapped models; or the path or a filter left no examples."
        ),
        remedy=(
            "set TrainingArguments(remove_unused_columns=False) to keep the columns; print len(dataset) and its "
            "column_names before training, on each node"
        ),
        source="hiyouga/LlamaFactory#671",
    ),
    CatalogueEntry(
        id="token-outside-vocabulary",
        title="A token or position is outside the model's embedding",
        example="IndexError: index out of range in self",
        texts=(r"IndexError: index out of range in self",),
        cause=(
            "A token ID is greater than or equal to the number of rows in the embedding, because tokens were "
            "added to the tokenizer or the tokenizer belongs to a different model; or a text is longer than the "
            "model allows."
        ),
        remedy=(
            "call model.resize_token_embeddings(len(tokenizer)) after adding tokens; use tokenizer(..., "
            "truncation=True, max_length=...) for long texts. On a GPU, the same mistake causes a device-side "
            "assert"
        ),
        source="mickeysjm/R-BERT#5",
    ),
    CatalogueEntry(
        id="samples-not-alike",
        title="The samples in a batch cannot be put into one tensor",
        example="ValueError: Unable to create tensor, you should probably activate truncation and/or padding",
        texts=(
            r"Unable to create tensor, you should probably activate truncation",
            r"stack expects each tensor to be equal size, but got",
            r"RuntimeError: Trying to resize storage that is not resizable",
        ),
        cause=(
            "The samples have different lengths or sizes, or a column still holds text, such as a non-numeric label."
        ),
        remedy=(
            "pad the samples in the collator (DataCollatorWithPadding, DataCollatorForSeq2Seq), with "
            "truncation=True in the tokenizer, and remove text columns (dataset.remove_columns); images must all "
            "have the same size (Resize)"
        ),
        source="ipuneetrathore/BERT_models#1",
    ),
    CatalogueEntry(
        id="image-broken",
        title="An image in the dataset is broken",
        example="OSError: image file is truncated (54 bytes not processed)",
        texts=(
            r"image file is truncated",
            r"cannot identify image file",
            r"broken data stream when reading image file",
        ),
        cause=(
            "A file was not copied or downloaded completely, or is not an image; if this happens on one node only, "
            "that node's copy of the data differs."
        ),
        remedy=(
            "compare the number and size of the files on the nodes and copy them again (ansible-playbook "
            "stage_data.yml). To train despite the broken images, set PIL.ImageFile.LOAD_TRUNCATED_IMAGES = "
            "True, or skip unreadable images in the dataset"
        ),
        source="pytorch/vision#138",
        recoverable=True,
    ),
    CatalogueEntry(
        id="worker-not-picklable",
        title="DataLoader workers cannot be started with this dataset",
        example="AttributeError: Can't pickle local object 'train.<locals>.<lambda>'",
        texts=(
            r"Can't pickle local object '",
            r"Can't get local object '",
            r"TypeError: cannot pickle '[\w.]{1,60}' object",
        ),
        cause=(
            "Workers that are not forked (the default since Python 3.14) receive the dataset as a pickle, which cannot "
            "contain "
            "lambdas, nested functions, or open files and connections. The same applies to copy.deepcopy and "
            "torch.save of whole objects, if the frames above name them."
        ),
        remedy=(
            "define the function at the top level of a module, and open files in the worker on first use; or use "
            'DataLoader(multiprocessing_context="fork"), or num_workers=0'
        ),
        source="Beckschen/TransUNet#95",
        recoverable=True,
        weak=True,
    ),
    CatalogueEntry(
        id="main-not-guarded",
        title="The script starts processes while it is being imported",
        example="RuntimeError: An attempt has been made to start a new process before the current process has "
        "finished its bootstrapping phase.",
        texts=(r"An attempt has been made to start a new process before the",),
        cause="A spawned process imports the script, and the script then starts processes again, since its "
        "main part is not guarded.",
        remedy='put the main part into a function and call it under if __name__ == "__main__":',
        source="psnc-qcg/QCG-PilotJob#85",
    ),
    CatalogueEntry(
        id="webdataset-nodes",
        title="WebDataset was not told how to split shards among ranks",
        example="ValueError: you need to add an explicit nodesplitter to your input pipeline for multi-node training",
        texts=(
            r"you need to add an explicit nodesplitter to your input pipeline",
            r"input pipeline needs to be reconfigured for multinode training",
        ),
        cause=(
            "With several ranks, webdataset must know which rank reads which shards, and raises an error rather "
            "than guessing."
        ),
        remedy=(
            "use wds.WebDataset(urls, nodesplitter=wds.split_by_node), with at least as many shards as ranks times "
            "workers; or use resampled=True with .with_epoch(N), so that all ranks have the same number of samples"
        ),
        source="Lightning-AI/pytorch-lightning#20149",
    ),
    CatalogueEntry(
        id="parquet-broken",
        title="A Parquet file is broken",
        example="pyarrow.lib.ArrowInvalid: Could not open Parquet input source '<Buffer>': Parquet magic bytes not "
        "found in footer.",
        texts=(
            r"Parquet magic bytes not found in footer",
            r"Parquet file size is 0 bytes",
        ),
        cause="The file was not completely written or downloaded, is still being written, or is not a data file: a Git "
        "LFS pointer, a web page, or a file in a different format in the same directory.",
        remedy=(
            "run `head -c 200 FILE` on the node to see its content; download the file again (git lfs pull, or "
            "hf download) and copy it to all nodes (ansible-playbook stage_data.yml). Select only the "
            'data files with data_files="*.parquet"'
        ),
        source="huggingface/datasets#4077",
        recoverable=True,
    ),
    CatalogueEntry(
        id="arrow-overflow",
        title="A dataset column is too large for Arrow",
        example="pyarrow.lib.ArrowInvalid: offset overflow while concatenating arrays",
        texts=(r"ArrowInvalid: offset overflow while concatenating arrays",),
        cause=(
            "One batch of a text, image or list column exceeds 2 GiB, the limit of Arrow's 32-bit offsets; "
            "typical causes are large images, long token lists, or one huge JSON file."
        ),
        remedy=(
            "write smaller batches with dataset.map(..., writer_batch_size=100, batch_size=100); split a huge file "
            "into several; store images as paths or Image() instead of pixel arrays; upgrade datasets"
        ),
        source="hiyouga/LlamaFactory#7526",
    ),
    CatalogueEntry(
        id="tar-cut-off",
        title="A dataset shard is truncated",
        example="tarfile.ReadError: unexpected end of data",
        texts=(
            r"tarfile\.ReadError: \(?[\"']?unexpected end of data",
            r'^ {0,8}raise ReadError\("unexpected end of data"\)',
        ),
        cause=(
            "A tar file ends too early: it was not completely downloaded or written, or the connection broke while "
            "the file was being streamed."
        ),
        remedy=(
            "run `tar tf FILE > /dev/null` to find broken files; download them again, and copy the data to the nodes "
            "before the job (ansible-playbook stage_data.yml). To skip broken shards, use wds.WebDataset(urls, "
            "handler=wds.warn_and_continue)"
        ),
        source="webdataset/webdataset#142",
        recoverable=True,
    ),
    CatalogueEntry(
        id="worker-in-worker",
        title="A daemonic worker process tried to start processes",
        example="AssertionError: daemonic processes are not allowed to have children",
        texts=(r"daemonic processes are not allowed to have children",),
        cause=(
            "A pool process, or another daemonic process, uses a DataLoader with workers or a pool, which Python "
            "does not allow."
        ),
        remedy=(
            "use DataLoader(num_workers=0) inside the worker; start the outer processes with daemon=False "
            "(mp.spawn(..., daemon=False)), or let muster's launcher start them instead of the script"
        ),
        source="pytorch/pytorch#15950",
    ),
)
