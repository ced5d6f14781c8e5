# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures to save, find or load checkpoints."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Checkpoints"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="checkpoint-not-written",
        title="A checkpoint was not fully written",
        example="PytorchStreamWriter failed writing file data/...: file write failed",
        texts=(r"PytorchStreamWriter failed writing file", r"unexpected pos \d{1,20} vs \d{1,20}"),
        cause="Usually the disk is full, or a network drive failed while the checkpoint was being saved.",
        remedy="check free space on that node (df -h); ansible-playbook runs.yml -e keep=5 removes older runs; avoid "
        "mounts that only append or cannot rename, such as mount-s3",
        source="hiyouga/LlamaFactory#1223",
        weak=True,
    ),
    CatalogueEntry(
        id="checkpoint-on-one-node",
        title="A checkpoint is on one node only",
        example="FileNotFoundError: Checkpoint file not found: .../epoch_000.ckpt",
        texts=(
            r"Checkpoint file not found:",
            r"Checkpoint at .{1,300} not found",
            r"FileNotFoundError: \[Errno 2\].{1,300}\.ckpt\b",
        ),
        cause="Rank 0 writes the checkpoints, on the first node of the run. The nodes share no disk, so the others "
        "lack the file that trainer.test or ckpt_path loads.",
        remedy="leave the test out (test=False in a Hydra template), and test in a launch of its own on the first "
        "node: ./muster launch -n 1 train.py ARGUMENTS; or save to a directory that all nodes mount: ./muster site "
        "--tags data. To resume on all nodes, copy the checkpoint to them: ./muster stage-data -e "
        "stage_data_path=DIRECTORY -e stage_data_destination=DIRECTORY",
        source="Lightning-AI/pytorch-lightning#18413",
    ),
    CatalogueEntry(
        id="checkpoint-keys",
        title="The checkpoint does not fit the model",
        example="Error(s) in loading state_dict for ...: Missing key(s) in state_dict: ...",
        texts=(r"Error\(s\) in loading state_dict for", r"(?:Missing|Unexpected) key\(s\) in state_dict"),
        cause="The checkpoint is from another model or other settings, or its keys have a prefix: 'module.' from "
        "DistributedDataParallel, '_orig_mod.' from torch.compile.",
        remedy="save model.module.state_dict() and load before wrapping; strip the prefix from the keys of an old one",
        source="aks2203/deep-thinking#5",
    ),
    CatalogueEntry(
        id="checkpoint-torn",
        title="A checkpoint is incomplete",
        example="PytorchStreamReader failed reading zip archive: failed finding central directory",
        texts=(r"PytorchStreamReader failed", r"MetadataIncompleteBuffer\b"),
        cause="The file is truncated: a job ended while saving, or a download was interrupted.",
        remedy="use the previous one and remove this one (for a download: from the cache). Save under a temporary "
        "name and rename when complete",
        source="JizhiziLi/P3M#13",
    ),
    CatalogueEntry(
        id="checkpoint-pickle",
        title="torch.load refuses the contents of a checkpoint",
        example="_pickle.UnpicklingError: Weights only load failed",
        texts=(r"Weights only load failed",),
        cause="Since torch 2.6, torch.load accepts only tensors and plain types, but this checkpoint contains objects "
        "of a class.",
        remedy="if you trust the file, use torch.load(..., weights_only=False), or "
        "torch.serialization.add_safe_globals([CLASS])",
        source="0Xiaohei0/LocalAIVtuber#51",
    ),
    CatalogueEntry(
        id="zero-world-size",
        title="A ZeRO checkpoint is from another number of ranks",
        example="ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 but the current "
        "world size is 16",
        texts=(
            r"The checkpoint being loaded used a DP world size of",
            r"Automatic adjustment of ZeRO's optimizer state partitioning with a new world size",
        ),
        cause="ZeRO saves the optimizer's state in one part per rank, and loads it only with the same number of ranks.",
        remedy="resume with the same number of ranks (-e nnodes=N -e nproc_per_node=N), or convert the "
        'checkpoint into a universal one: ds_to_universal.py, and "checkpoint": {"load_universal": '
        "true} in the configuration. For the weights alone: zero_to_fp32.py, which is beside the "
        "checkpoint",
        source="deepspeedai/DeepSpeed#2898",
    ),
    CatalogueEntry(
        id="vocabulary-size",
        title="The checkpoint has a vocabulary of another size",
        example="size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([128260, "
        "4096]) from checkpoint, the shape in current model is torch.Size([128256, 4096]).",
        texts=(
            r"size mismatch for [\w.]{0,150}(?:embed_tokens|lm_head|word_embeddings|token_embedding|embeddings?|sh"
            r"ared|wte|embed_in|output_projection)\.(?:[\w.]{1,60}\.)?(?:weight|bias): copying a param",
        ),
        cause="The embedding has another number of rows in the checkpoint than in the model: tokens were "
        "added to the tokenizer before it was saved, or the model is loaded with another tokenizer or "
        "configuration.",
        remedy="call model.resize_token_embeddings(N) with the checkpoint's number of rows before the weights "
        "are loaded, and load the tokenizer that was saved with the checkpoint",
        source="YangRui2015/RiC#19",
        refines=("checkpoint-keys",),
    ),
    CatalogueEntry(
        id="checkpoint-pointer",
        title="A model file is only a pointer or a web page",
        example="_pickle.UnpicklingError: invalid load key, 'v'.",
        texts=(
            r"invalid load key, '[v<]'",
            r"Error while deserializing header: (?:HeaderTooLarge|header too large)",
        ),
        cause="The file does not contain weights: it is the pointer of Git LFS (its text begins with "
        "`version`), a web page that was downloaded instead, or a damaged download.",
        remedy="`head -c 200 FILE` on the node shows which. Run `git lfs pull` in the repository, or download "
        "it again with huggingface-cli download; then copy it to all nodes (ansible-playbook "
        "stage_data.yml)",
        source="hhj1897/face_parsing#3",
    ),
    CatalogueEntry(
        id="optimizer-state",
        title="The saved optimizer has other parameters than this one",
        example="ValueError: loaded state dict contains a parameter group that doesn't match the size of "
        "optimizer's group",
        texts=(
            r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of paramet"
            r"er groups)",
        ),
        cause="The checkpoint's optimizer was created for other parameters: layers were frozen, unfrozen, "
        "added or removed since it was saved, or the groups (weight decay) differ.",
        remedy="create the model and the optimizer exactly as when it was saved before you resume; or load "
        "only the model's weights and start with a new optimizer",
        source="STVIR/pysot#92",
    ),
)
