# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of DeepSpeed and its configuration."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "DeepSpeed"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="deepspeed-arguments-differ",
        title="The DeepSpeed configuration contradicts the arguments",
        example="Please correct the following DeepSpeed config values that mismatch TrainingArguments values",
        texts=(
            r"DeepSpeed config values that mismatch",
            r"`--mixed_precision` arg cannot be set to `\w{1,8}` when `\w{1,8}` is set in the DeepSpeed config",
        ),
        cause="A value differs between the DeepSpeed configuration and the arguments of the Trainer or of "
        "accelerate: fp16 or bf16, the batch size, or the learning rate.",
        remedy=(
            'set these values to "auto" in the DeepSpeed configuration, so that they follow the arguments; or use '
            "the same values in both places"
        ),
        source="LianjiaTech/BELLE#154",
    ),
    CatalogueEntry(
        id="local-rank-unknown",
        title="The script does not accept --local_rank",
        example="train.py: error: unrecognized arguments: --local_rank=0",
        texts=(
            r"unrecognized arguments: [^\n]{0,200}--local[-_]rank",
            r"not used by the HfArgumentParser: \['--local[-_]rank",
        ),
        cause="DeepSpeed's launcher passes --local_rank to each process, and the script's parser rejects it.",
        remedy=(
            "if the script reads LOCAL_RANK, launch with -e launch_deepspeed_local_rank=false; or add "
            "parser.add_argument('--local_rank', type=int, default=-1) to the script"
        ),
        source="01-ai/Yi#69",
    ),
    CatalogueEntry(
        id="deepspeed-batch-sizes",
        title="DeepSpeed's batch sizes are inconsistent",
        example="train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        texts=(r"Check batch related parameters", r"train_batch_size is not equal to micro_batch_per_gpu"),
        cause=(
            "DeepSpeed requires train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * "
            "number of ranks. A world_size of 1 in the message means that deepspeed was initialized before "
            "torch.distributed."
        ),
        remedy=(
            'leave train_batch_size out of the configuration (with the Hugging Face Trainer, set it to "auto"), so '
            "that it is computed from the number of ranks"
        ),
        source="deepspeedai/DeepSpeed#6914",
    ),
    CatalogueEntry(
        id="deepspeed-configuration",
        title="The DeepSpeed configuration cannot be found",
        example="Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string",
        texts=(r"Expected a string path to an existing deepspeed config",),
        cause="The file is not in the job's working directory, or not on that node.",
        remedy=(
            "give the file's path relative to launch_working_directory, or an absolute path; with code_source set, "
            "run ansible-playbook site.yml --tags code to copy the file to all nodes"
        ),
        source="QwenLM/Qwen#1171",
    ),
    CatalogueEntry(
        id="json-error",
        title="A JSON file is not valid JSON",
        example="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
        texts=(r"JSONDecodeError: (?:Expecting|Extra data|Invalid|Unterminated)",),
        cause=(
            "A configuration or data file contains a comment, a comma before a closing bracket or single quotes, or "
            "is empty."
        ),
        remedy=(
            "run `python -m json.tool FILE` to see the position of the error; if the file is an incomplete download, "
            "remove it"
        ),
        source="bowang-lab/BioReason#10",
        recoverable=True,
    ),
    CatalogueEntry(
        id="deepspeed-two-precisions",
        title="The DeepSpeed configuration enables fp16 and bf16",
        example="AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled",
        texts=(
            r"bfloat16 and fp16 modes cannot be simultaneously enabled",
            r"bf16 and fp16 modes cannot be simultaneously enabled",
        ),
        cause="Both precisions are enabled: one in the configuration file, the other often by the framework.",
        remedy=(
            'remove the section "fp16" from the configuration, or "bf16" for GPUs before Ampere; with the Trainer, '
            'set "enabled": "auto" in both sections, so that they follow --bf16 or --fp16'
        ),
        source="Snowflake-AI-Research/Arctic-Platform#78",
    ),
    CatalogueEntry(
        id="zero3-outside-engine",
        title="A model is used outside DeepSpeed's engine",
        example="RuntimeError: 'weight' must be 2-D",
        texts=(r"RuntimeError: 'weight' must be 2-D",),
        cause=(
            "ZeRO-3 splits weights across the ranks and gathers them only in the forward pass of a model that "
            "was passed to deepspeed.initialize. Here an empty shard is being used, either from a second model "
            "(reference, teacher, text encoder), or from a model called directly."
        ),
        remedy=(
            "call deepspeed.initialize or accelerator.prepare for that model as well, or create it outside "
            "zero.Init (zero3_init_flag: false); to use only a few weights, gather them with "
            "deepspeed.zero.GatheredParameters(...). Or use ZeRO-2"
        ),
        source="arcee-ai/DistillKit#3",
    ),
    CatalogueEntry(
        id="deepspeed-no-sync",
        title="DeepSpeed and accelerate disagree about gradient accumulation",
        example="AssertionError: no_sync context manager is incompatible with gradient partitioning logic of "
        "ZeRO stage 2",
        texts=(r"no.sync context manager is incompatible with gradient",),
        cause=(
            "accelerate skips the exchange of gradients between two optimizer steps, which ZeRO 2 and 3 do not "
            "allow; DeepSpeed 0.16 raises an error in this case."
        ),
        remedy=(
            "upgrade accelerate and transformers in the job's requirements, or pin deepspeed==0.15.4, and run "
            "ansible-playbook site.yml --tags python_env; or set gradient_accumulation_steps=1"
        ),
        source="kongds/E5-V#23",
    ),
    CatalogueEntry(
        id="zero3-device-map",
        title="A model for ZeRO 3 is loaded with device_map",
        example="ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing "
        "a `device_map`.",
        texts=(r"DeepSpeed Zero-3 is not compatible with (?:`low_cpu_mem_usage|passing a `device_map)",),
        cause=(
            "ZeRO 3 distributes the weights itself while they are being loaded, but device_map and "
            "low_cpu_mem_usage would also place them."
        ),
        remedy=(
            "leave device_map and low_cpu_mem_usage out of from_pretrained; a quantized model, which needs "
            "device_map, works with ZeRO 2"
        ),
        source="hiyouga/LlamaFactory#199",
    ),
    CatalogueEntry(
        id="deepspeed-offload-optimizer",
        title="ZeRO-Offload needs DeepSpeed's own optimizer",
        example="ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer (<class "
        "'torch.optim.adamw.AdamW'>)",
        texts=(r"You are using ZeRO-Offload with a client provided",),
        cause=(
            "The configuration keeps the optimizer in host memory, but the script passes an optimizer that is slow "
            "there."
        ),
        remedy=(
            'put an optimizer into the DeepSpeed configuration ("optimizer": {"type": "AdamW", ...}) or use '
            "deepspeed.ops.adam.DeepSpeedCPUAdam; to allow the script's own optimizer, set "
            '"zero_force_ds_cpu_optimizer": false'
        ),
        source="OptimalScale/LMFlow#693",
    ),
    CatalogueEntry(
        id="zero3-inflight",
        title="The layers of a ZeRO-3 model are not called in the same order in every step",
        example="RuntimeError: still have inflight params [{'id': 723, 'status': 'AVAILABLE', ...}]",
        texts=(r"still have inflight params",),
        cause=(
            "ZeRO-3 prefetches weights in the order of earlier steps, and this step did not use some of them, "
            "because which layers are used depends on the data (experts, modalities, adapters), or because the model "
            "switched between training and evaluation."
        ),
        remedy=(
            'set "stage3_prefetch_bucket_size": 0 in the DeepSpeed configuration, so that nothing is prefetched; '
            "call deepspeed.utils.set_z3_leaf_modules(model, [BLOCK]) to mark blocks whose layers are chosen by "
            "the data; upgrade DeepSpeed; or use ZeRO-2"
        ),
        source="deepspeedai/DeepSpeed#5828",
    ),
    CatalogueEntry(
        id="hostfile-malformed",
        title="DeepSpeed cannot read its hostfile",
        example="ValueError: Hostfile contains a bad entry: node2 lots=8, unable to proceed with launching",
        texts=(
            r"Hostfile contains a bad entry",
            r"Hostfile contains multiple entries for",
            r"Hostfile is empty or not formatted correctly",
        ),
        cause="A line of the hostfile does not have the form `HOST slots=N`, or a host is listed twice.",
        remedy="correct the line; or leave --hostfile out, since muster writes a hostfile from the inventory",
        source="deepspeedai/DeepSpeed#3669",
    ),
)
