# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures to save, find or load checkpoints."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Checkpoints"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="checkpoint-of-other-ranks",
        title="This rank's part of a checkpoint is missing",
        example="FileNotFoundError: [Errno 2] No such file or directory: "
        "'.../global_step001/zero_pp_rank_4_mp_rank_00_optim_states.pt'",
        texts=(
            r"No such file or directory:? '?[^'\n]{0,300}(?:world_size_\d{1,7}_rank_\d|"
            r"zero_pp_rank_\d{1,7}_mp_rank_\d|mp_rank_\d{1,5}_model_states|rank_\d{1,7}_of_\d)",
            r"The following zero checkpoints paths are missing",
            r"assert len\(self\.ckpt_list\) > 0",
        ),
        cause=(
            "The checkpoint has one file per rank, with the rank or the number of ranks in its name. Either it "
            "was saved by a different number of ranks or with a different ZeRO stage or parallel size, or this "
            "node cannot see the files that other nodes wrote."
        ),
        remedy=(
            "resume with the number of nodes and ranks that saved the checkpoint (the file names in the directory "
            "show it), and from a drive that all nodes share (ansible-playbook site.yml --tags data). For a "
            "different number of ranks, convert the checkpoint first, with ds_to_universal.py or zero_to_fp32.py for "
            "DeepSpeed or with the framework's merge script for FSDP shards; or load only the weights"
        ),
        source="HuangLK/transpeeder#28",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-unfinished",
        title="A distributed checkpoint is incomplete",
        example="FileNotFoundError: [Errno 2] No such file or directory: '.../checkpoint-1400/.metadata'",
        texts=(
            r"No such file or directory: '[^'\n]{0,300}/\.metadata'",
            r"AssertionError: metadata is None",
        ),
        cause=(
            "torch.distributed.checkpoint writes the file .metadata last, on rank 0. If the file is missing, either "
            "the save was interrupted and the checkpoint is incomplete, or only the first node has the file because "
            "the nodes share no drive."
        ),
        remedy="list the directory on the first node. If .metadata is missing there as well, remove this checkpoint "
        "and resume from the previous one; otherwise save to a drive that all nodes share (ansible-playbook site.yml "
        "--tags data), or copy the checkpoint files of all nodes to every node",
        source="huggingface/accelerate#3010",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-other-gpus",
        title="A checkpoint was saved on a GPU that this node does not have",
        example="RuntimeError: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 1.",
        texts=(r"Attempting to deserialize object on (?:CUDA device \d{1,4} but|a CUDA device but)",),
        cause="torch.load puts each tensor on the GPU from which it was saved, and this process has fewer GPUs, or "
        "none.",
        remedy=(
            'call torch.load(path, map_location="cpu"), then load_state_dict, which copies the tensors to the '
            "model's own device"
        ),
        source="computationalmedia/semstyle#3",
    ),
    CatalogueEntry(
        id="checkpoint-vocabulary",
        title="The checkpoint's vocabulary differs from the model's",
        example="size mismatch for lm_head.weight: copying a param with shape torch.Size([54953, 512]) from "
        "checkpoint, the shape in current model is torch.Size([54944, 512])",
        texts=(
            r"size mismatch for [\w.]{0,160}(?:embed_tokens|lm_head|wte|tok_embeddings|word_embeddings|"
            r"shared|embeddings)\.[\w.]{0,80}: copying a param",
        ),
        cause="The checkpoint's embedding has a different size from the model's: tokens were added before the "
        "checkpoint was saved, or its vocabulary was padded.",
        remedy=(
            "load the tokenizer that was saved with the checkpoint, and call "
            "model.resize_token_embeddings(len(tokenizer)) before you load the checkpoint; instead of "
            "len(tokenizer), you can pass the number of rows in the checkpoint, which the message shows"
        ),
        source="thu-coai/Emotional-Support-Conversation#7",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-shapes",
        title="Tensors in the checkpoint have different shapes from those in the model",
        example="size mismatch for layers.0.weight: copying a param with shape torch.Size([512, 432]) from "
        "checkpoint, the shape in current model is torch.Size([512, 192])",
        texts=(r"size mismatch for [\w.]{1,200}: copying a param with shape",),
        cause=(
            "The model is built with settings that differ from the checkpoint's: size, number of heads or classes, "
            "or tensor-parallel degree."
        ),
        remedy="build the model with the configuration that was saved with the checkpoint; to replace only a "
        "head, remove its keys from the state_dict and load with strict=False",
        source="zhongyy/Face-Transformer#23",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-world-size",
        title="The checkpoint was saved by a different number of ranks",
        example="The checkpoint being loaded used a DP world size of 8 but the current world size is 16",
        texts=(r"used a DP world size of \d{1,7} but the current world size is \d",),
        cause=(
            "ZeRO saves the optimizer state in one part per rank, so a checkpoint can be resumed only with the same "
            "number of ranks."
        ),
        remedy=(
            "resume with the same number of ranks; or convert the checkpoint to a universal checkpoint (run "
            'ds_to_universal.py, and set "checkpoint": {"load_universal": true} in the DeepSpeed configuration); or '
            "resume only the weights with zero_to_fp32.py"
        ),
        source="deepspeedai/Megatron-DeepSpeed#439",
    ),
    CatalogueEntry(
        id="checkpoint-not-written",
        title="A checkpoint was not fully written",
        example="PytorchStreamWriter failed writing file data/...: file write failed",
        texts=(r"PytorchStreamWriter failed writing file", r"unexpected pos \d{1,20} vs \d{1,20}"),
        cause="Usually the disk is full, or a network drive failed while the checkpoint was being saved.",
        remedy=(
            "check the free space on that node (df -h); run ansible-playbook runs.yml -e keep=5 to remove older "
            "runs; do not save to mounts that are append-only or cannot rename files, such as mount-s3"
        ),
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
        remedy=(
            "skip the test (test=False in a Hydra template), and test in a separate launch on the first node "
            "with ./muster launch -n 1 train.py ARGUMENTS; or save to a directory that all nodes mount, which "
            "./muster site --tags data sets up. To resume on all nodes, copy the checkpoint to them with "
            "./muster stage-data -e stage_data_path=DIRECTORY -e stage_data_destination=DIRECTORY"
        ),
        source="Lightning-AI/pytorch-lightning#18413",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-keys",
        title="The checkpoint does not match the model",
        example="Error(s) in loading state_dict for ...: Missing key(s) in state_dict: ...",
        texts=(r"Error\(s\) in loading state_dict for", r"(?:Missing|Unexpected) key\(s\) in state_dict"),
        cause="The checkpoint is from a different model or different settings, or its keys have a prefix: 'module.' "
        "from DistributedDataParallel, '_orig_mod.' from torch.compile.",
        remedy=(
            "save model.module.state_dict() and load it before wrapping the model; strip the prefix from the "
            "keys of an old checkpoint"
        ),
        source="aks2203/deep-thinking#5",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-torn",
        title="A checkpoint is incomplete",
        example="PytorchStreamReader failed reading zip archive: failed finding central directory",
        texts=(
            r"PytorchStreamReader failed",
            r"MetadataIncompleteBuffer\b",
            r"InvalidHeaderDeserialization\b",
            r"Error while deserializing header: (?:incomplete metadata|invalid header|header too small)",
            r"enforce fail at inline_container\.cc:\d{1,5}\] ?\. (?:file not found|file in archive|invalid header)",
            r"file in archive is not in a subdirectory",
            r"storage has wrong size: expected -?\d{1,20} got \d",
        ),
        cause=(
            "The file is truncated or damaged: a job ended while saving, a download was interrupted, or several "
            "ranks wrote the same file at the same time, such as local rank 0 of each node on a shared drive."
        ),
        remedy=(
            "use the previous checkpoint and remove this one (if it was downloaded, remove it from the cache). "
            "Save only on rank 0 of the whole job, not on local rank 0 of each node, and save under a temporary "
            "name and rename the file once it is complete"
        ),
        source="JizhiziLi/P3M#13",
    ),
    CatalogueEntry(
        id="checkpoint-pickle",
        title="torch.load rejects the contents of a checkpoint",
        example="_pickle.UnpicklingError: Weights only load failed",
        texts=(r"Weights only load failed",),
        cause=(
            "Since torch 2.6, torch.load accepts only tensors and plain types, but this checkpoint contains objects "
            "of other classes."
        ),
        remedy=(
            "if you trust the file, use torch.load(..., weights_only=False), or allow the class with "
            "torch.serialization.add_safe_globals([CLASS])"
        ),
        source="0Xiaohei0/LocalAIVtuber#51",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-file-missing",
        title="A checkpoint file is missing on this node",
        example="FileNotFoundError: [Errno 2] No such file or directory: '.../checkpoint-100/pytorch_model.bin'",
        texts=(
            r"No such file or directory: '[^'\n]{0,300}(?:checkpoint|ckpt|epoch[-_]\d|"
            r"global_step\d|step[-_]\d)[^'\n]{0,200}\.(?:bin|pt|pth|safetensors|distcp)'",
            r"No such file or directory: '[^'\n]{0,300}/checkpoint-\d{1,9}/[^'\n]{0,200}\.json'",
        ),
        cause="The checkpoint is not on this node: only the first node wrote it and the nodes share no disk, or the "
        "path is wrong; or rank 0 has not finished writing it, because this rank did not wait at a barrier.",
        remedy=(
            "save to a shared drive that all nodes mount (ansible-playbook site.yml --tags data), or copy the "
            "checkpoint to all nodes with ansible-playbook stage_data.yml -e stage_data_path=DIRECTORY -e "
            "stage_data_destination=DIRECTORY"
        ),
        source="huggingface/transformers#30859",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-pointer",
        title="A model file is only a pointer or a web page",
        example="_pickle.UnpicklingError: invalid load key, 'v'.",
        texts=(
            r"invalid load key, '[v<]'",
            r"Error while deserializing header: (?:HeaderTooLarge|header too large)",
        ),
        cause="The file does not contain weights: it is a Git LFS pointer (its text begins with "
        "`version`), a web page that was downloaded instead, or a damaged download.",
        remedy=(
            "run `head -c 200 FILE` on the node to see which of these it is. Run `git lfs pull` in the "
            "repository, or download the file again with hf download; then copy it to all nodes "
            "(ansible-playbook stage_data.yml)"
        ),
        source="hhj1897/face_parsing#3",
        recoverable=True,
    ),
    CatalogueEntry(
        id="optimizer-state",
        title="The saved optimizer has different parameters from the current optimizer",
        example="ValueError: loaded state dict contains a parameter group that doesn't match the size of "
        "optimizer's group",
        texts=(
            r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of paramet"
            r"er groups)",
        ),
        cause=(
            "The checkpoint's optimizer was created for different parameters: layers have been frozen, unfrozen, "
            "added or removed since the checkpoint was saved, or the parameter groups (weight decay) differ."
        ),
        remedy=(
            "before you resume, create the model and the optimizer exactly as they were when the checkpoint was "
            "saved; or load only the model's weights and start with a new optimizer"
        ),
        source="STVIR/pysot#92",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-directory-race",
        title="Several ranks write to one checkpoint directory at the same time",
        example="OSError: [Errno 39] Directory not empty: '/results/tmp-checkpoint-1' -> '/results/checkpoint-50'",
        texts=(
            r"\[Errno 39\] Directory not empty: ",
            r"FileExistsError: \[Errno 17\] File exists: '[^\n]{0,300}(?:checkpoint|ckpt|output|global_step|save)",
        ),
        cause=(
            "Each rank creates, renames or removes the same directory, and another rank did so first; on a "
            "network drive, even os.makedirs with exist_ok=True fails in this way."
        ),
        remedy=(
            "let one rank create the directory while the others wait: if rank == 0: os.makedirs(...), then "
            "torch.distributed.barrier(). With the Trainer, upgrade transformers (in version 4.49, each rank did "
            "the saving), and set save_on_each_node only if the nodes share no drive"
        ),
        source="huggingface/transformers#36076",
        weak=True,
    ),
    CatalogueEntry(
        id="checkpoint-not-found",
        title="There is no checkpoint to resume from on this node",
        example="ValueError: Can't find a valid checkpoint at /outputs/checkpoint-50000",
        texts=(
            r"Can't find a valid checkpoint at ",
            r"No valid checkpoint found in output directory",
            r"Error no file named [^\n]{1,120} found in directory",
        ),
        cause=(
            "The directory does not exist on this node, or lacks the weights under the names that the loader "
            "looks for; or, if this rank did not wait at a barrier, rank 0 has not finished writing them. "
            "Without a shared drive, only the first node has what rank 0 saved. A checkpoint from another "
            "framework or strategy (ZeRO, FSDP, LoRA) has different files."
        ),
        remedy=(
            "save to a drive that all nodes share (ansible-playbook site.yml --tags data), or copy the checkpoint to "
            "every node before you resume (ansible-playbook stage_data.yml); then pass the directory of a single "
            "step, such as checkpoint-500, and resume with the same strategy that saved the checkpoint"
        ),
        source="HKUDS/GraphGPT#78",
        recoverable=True,
    ),
    CatalogueEntry(
        id="checkpoint-directory-missing",
        title="A checkpoint directory does not exist on this node",
        example="RuntimeError: Parent directory ... does not exist.",
        texts=(r"RuntimeError: Parent directory [^\n]{1,400} does not exist",),
        cause=(
            "torch.save does not create directories. Either rank 0 creates the directory only on its own node, or "
            "other ranks save before rank 0 has created it."
        ),
        remedy=(
            "call os.makedirs(directory, exist_ok=True) on every rank before it saves; or save to a shared drive "
            "(ansible-playbook site.yml --tags data) and let the ranks wait at a barrier until rank 0 has created "
            "the directory"
        ),
        source="karpathy/nanochat#336",
    ),
    CatalogueEntry(
        id="checkpoint-cut-off",
        title="A pickled file is empty or cut off",
        example="EOFError: Ran out of input",
        texts=(
            r"EOFError: Ran out of input",
            r"UnpicklingError: pickle data was truncated",
            r"unexpected EOF(?:, expected \d{1,20} more bytes)?\. The file might be corrupted",
        ),
        cause=(
            "The file was not written completely: the job was stopped while saving it, the disk was full, or another "
            "rank is still writing it."
        ),
        remedy=(
            "resume from the previous checkpoint and remove this one, or remove the cached file. Let one rank "
            "save under a temporary name and then rename the file while the others wait at a barrier"
        ),
        source="StrongResearch/isc-demos#3",
        recoverable=True,
    ),
    CatalogueEntry(
        id="torch-load-refused",
        title="transformers rejects torch.load from an older torch version",
        example="ValueError: Due to a serious vulnerability issue in `torch.load`, even with "
        "`weights_only=True`, we now require users to upgrade torch to at least v2.6",
        texts=(r"serious vulnerability issue in `?torch\.load",),
        cause="The weights or the optimizer are in pickle files (.bin, .pt), and this version of transformers "
        "reads such files only with torch 2.6 or later.",
        remedy=(
            "install a newer torch with ansible-playbook site.yml --tags python_env,pytorch -e "
            "pytorch_version=2.6.0; or use weights in safetensors format, and add an older transformers (4.51) to "
            "the job's requirements to resume a checkpoint"
        ),
        source="Gaius-Augustus/learnMSA#21",
        recoverable=True,
    ),
    CatalogueEntry(
        id="distributed-checkpoint-keys",
        title="A distributed checkpoint lacks entries",
        example="RuntimeError: Missing key in checkpoint state_dict: optimizer.state.weight.step",
        texts=(
            r"Missing key in checkpoint state_dict: ",
            r"Missing optimizer state for parameter '[^'\n]{1,200}' in checkpoint",
        ),
        cause=(
            "The checkpoint was saved from a different model, by a different torch version, or without the "
            "optimizer, or some parameters had no gradient yet."
        ),
        remedy=(
            "load only the entries that exist, with dcp.load(..., "
            "planner=DefaultLoadPlanner(allow_partial_load=True)) or StateDictOptions(strict=False); or resume "
            "with the model and the torch version that saved the checkpoint"
        ),
        source="pytorch/pytorch#148252",
    ),
)
