# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about memory: what the frames show, and what a job was doing before it ran out of memory."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.gpus import (
    FULL,
    NEW_TOTALS,
    OLD_TOTALS,
    OLDEST_TOTALS,
    OWN_GPU,
    frame_in,
    used_by_others,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Where memory ran out"
LATE_TOPIC = "When memory ran out"
HOST = (
    "kernel-out-of-memory",
    "host-out-of-memory",
    "host-allocator-out-of-memory",
    "container-out-of-memory",
    "dataloader-killed",
    "worker-process-killed",
)
ALL_TOTALS = (NEW_TOTALS, OLD_TOTALS, OLDEST_TOTALS)
# Frames of work done alongside the training steps, which other rules explain.
BESIDE = (
    r", in \w{0,40}(?:eval|valid|predict|test_step|generate|nested_concat|save|state_dict|summon_full|load_model|"
    r"from_pretrained|all_gather_object|gather_object)\w{0,40}$|torch/serialization\.py"
)
# An epoch other than the first, whether epochs are counted from 0 or 1, in a progress line.
NUMBER = r"0{0,3}(?P<epoch>(?:[2-9]|[1-9]\d{1,3})\b|[1-9]\.\d{1,4})"
PROGRESS = r"(?:loss|it/s|s/it|batch|iter|\bstep\b|\d/\d|%\|)"
EPOCH = (
    rf"(?i:\bepoch\b['\"]?[ :=\[#(]{{0,4}}{NUMBER}(?=[^\n]{{0,200}}{PROGRESS})|"
    rf"loss[^\n]{{0,200}}\bepoch\b['\"]?[ :=\[#(]{{0,4}}0{{0,3}}(?P<later>[2-9]|[1-9]\d{{1,3}}|[1-9]\.\d{{1,4}})\b)"
)
LOADED = (
    r"(?i:\bresum(?:e|ed|ing)\b|\brestor(?:e|ed|ing)\b|\bload(?:ed|ing) (?:the )?(?:checkpoint|ema|state_dict|from|"
    r"ckpt|model))"
)
CPU_FIRST = 'use torch.load(path, map_location="cpu") at every load (model, EMA, optimizer), then load_state_dict'
LEAK = (
    "keep numbers instead of tensors: use total += loss.item(), and .detach().cpu() for what is collected for "
    "plots or metrics; compute metrics under torch.no_grad(). To see whether memory is still growing, print "
    "torch.cuda.memory_allocated() once per epoch"
)


def is_own(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the memory belongs to this process."""
    return not used_by_others(groups, facts)


def shared_gpu(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether processes other than this one are filling up GPU 0."""
    return groups["gpu"] == "0" and used_by_others(groups, facts)


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="memory-of-torch-load",
        entries=FULL,
        shows=(
            r'File "[^"\n]{1,300}/torch/serialization\.py", line \d{1,9}, in (?P<function>\w{1,60})$',
            r'File "[^"\n]{1,300}/torch/(?:serialization|_utils|storage)\.py", line \d{1,9}, in (?:load|_load|'
            r"_legacy_load|"
            r"persistent_load|load_tensor|restore_location|default_restore_location|_cuda_deserialize|_cuda|"
            r"wrap_storage|_deserialize|_rebuild_\w{1,30})$",
        ),
        cause=(
            "The GPU ran out of memory in torch.load: without map_location, torch.load puts the checkpoint back on "
            "the GPU from which it was saved, in addition to what is already there (the model, an inference engine, "
            "other ranks)."
        ),
        remedy=f"{CPU_FIRST}; delete the loaded dictionary afterwards. If host memory is also short, add mmap=True",
        certain=True,
    ),
    *(
        EvidenceRule(
            id=f"memory-after-resume-{number}",
            entries=FULL,
            shows=(pattern, LOADED),
            unless=BESIDE,
            cause=(
                "Other ranks of this node are filling the memory of GPU 0 (this one has {own} of {total}): most "
                "likely each has just loaded the checkpoint onto GPU 0, from which it was saved, since "
                "torch.load was called without map_location."
            ),
            remedy=f"{CPU_FIRST}. Otherwise, run `nvidia-smi` on that node to find the processes on GPU 0",
            condition=shared_gpu,
        )
        for number, pattern in enumerate(ALL_TOTALS)
    ),
    EvidenceRule(
        id="memory-at-first-barrier",
        entries=FULL,
        shows=(
            r'/torch/distributed/[^"\n]{1,100}", line \d{1,9}, in (?:barrier|all_reduce|broadcast|all_gather|'
            r"_verify_\w{1,40})$",
        ),
        unless=rf"\bloss\b['\"]?\s{{0,3}}[=:]\s{{0,3}}\d|{BESIDE}",
        cause=(
            "The first collective could not allocate its memory on the GPU: without torch.cuda.set_device, all "
            "ranks of a node use GPU 0 for it, or other processes already fill the GPU."
        ),
        remedy=(
            f"{OWN_GPU}; to find processes that hold GPUs, run `nvidia-smi` on that node and ansible-playbook "
            "preflight.yml"
        ),
    ),
    EvidenceRule(
        id="memory-of-data-parallel",
        entries=FULL,
        shows=(r"/torch/nn/parallel/(?:data_parallel|scatter_gather|parallel_apply|replicate)\.py",),
        cause=(
            "The model runs in DataParallel: one process uses all GPUs of the node and gathers outputs and gradients "
            "on the first one, which ran out of memory."
        ),
        remedy=(
            "use DistributedDataParallel with one process per GPU instead, and wrap the model after "
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); the Hugging Face Trainer uses DataParallel if the "
            "script is started without a multi-process launcher (nproc_per_node)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="memory-of-copy",
        entries=FULL,
        shows=(frame_in("deepcopy|_reconstruct|ema"), r"deepcopy\(|(?i:\bema\b|ModelEma|EMAModel|AveragedModel)"),
        cause=(
            "The GPU ran out of memory while the model was being copied for an EMA, a reference model or a "
            "teacher ({function}): the second copy does not fit."
        ),
        remedy=(
            'make the copy on the CPU with ema = copy.deepcopy(model).cpu() (device="cpu" for ModelEma), or '
            "freeze it and keep it in bf16; with LoRA in trl, use ref_model=None; or shard both models (FSDP, "
            "ZeRO 3)"
        ),
    ),
    EvidenceRule(
        id="memory-of-attention",
        entries=FULL,
        shows=(
            r"(?:attn_weights|attention_scores|attn_scores|attention_probs|attn) "
            r"?=[^\n]{0,160}(?:matmul|softmax|baddbmm|"
            r"einsum|@|torch\.bmm|dropout)",
        ),
        cause="The GPU ran out of memory for the attention scores, which grow with the square of the sample length.",
        remedy=(
            "use an attention implementation that does not store them: use "
            'attn_implementation="flash_attention_2" or "sdpa" in from_pretrained '
            "(torch.nn.functional.scaled_dot_product_attention in your own code). Otherwise, use shorter samples "
            "(max_length), a smaller batch, or gradient checkpointing"
        ),
    ),
    EvidenceRule(
        id="memory-of-reducer",
        entries=FULL,
        shows=(frame_in("_ddp_init_helper|_build_bucket|_sync_module_states"),),
        cause=(
            "The GPU ran out of memory when DistributedDataParallel created its buckets, which take as much "
            "memory as the gradients, in addition to the weights, the gradients and the optimizer."
        ),
        remedy=(
            "shard the model with FSDP or ZeRO stage 2 or 3, or load it in bf16, which halves weights and buckets "
            "(gradient_as_bucket_view=True saves memory only later, in the backward pass)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="memory-of-weights",
        entries=FULL,
        shows=(r'/torch/nn/modules/module\.py", line \d{1,9}, in (?:convert|to|cuda|_apply)$',),
        unless=r", in (?:forward|backward|training_step|train_step)$",
        cause=(
            "The GPU ran out of memory while the weights were being moved to it: the weights alone do not fit "
            "alongside what is already there, since data parallelism keeps all of them on each GPU."
        ),
        remedy=(
            "shard the weights with ZeRO stage 3 or FSDP; or load in bf16 (torch_dtype=torch.bfloat16) or in 4 bits. "
            f"Run `nvidia-smi` to see whether another process or rank is on this GPU; if so, {OWN_GPU}"
        ),
    ),
    EvidenceRule(
        id="host-memory-at-load",
        entries=HOST,
        shows=(
            r"(?i:loading checkpoint shards|loaded checkpoint|loading (?:the )?(?:model|weights|checkpoint|pretrained)|"
            r"from_pretrained|load_state_dict|into host memory)",
        ),
        unless=r"\bloss\b['\"]?\s{0,3}[=:]\s{0,3}\d|\d{1,3}%\|[^\n]{0,80}it/s[^\n]{0,60}loss",
        cause=(
            "The machine ran out of memory while the model was being loaded: each rank of the node loads the "
            "whole model into host memory, which takes the size of the model times the number of ranks."
        ),
        remedy=(
            "let the ranks load the model one after another, or without a full copy on each rank: use "
            "low_cpu_mem_usage=True and torch_dtype=torch.bfloat16 in from_pretrained, torch.load(..., "
            "mmap=True), fsdp_cpu_ram_efficient_loading, or ZeRO 3 with zero.Init. Otherwise, use fewer ranks "
            "per node (-e nproc_per_node=N) or machines with more memory"
        ),
    ),
    EvidenceRule(
        id="host-memory-at-save",
        entries=HOST,
        shows=(
            r"(?i:\bsaving\b[^\n]{0,80}(?:model|checkpoint|state|optimizer)|gather(?:ing)? (?:the )?(?:full )?state|"
            r"state_dict\(|consolidat)",
        ),
        unless=r"(?i:\bsaved\b[^\n]{0,80}\n[^\n]{0,300}\bloss\b)",
        cause=(
            "The machine ran out of memory while a checkpoint was being saved: every rank of the node gathers "
            "the full model or optimizer state into host memory."
        ),
        remedy=(
            "gather only on rank 0, which is the only rank that needs it: use "
            "FullStateDictConfig(offload_to_cpu=True, rank0_only=True) and the same for the optimizer. Or save "
            "shards (SHARDED_STATE_DICT, torch.distributed.checkpoint), which need no gathering"
        ),
    ),
    EvidenceRule(
        id="host-memory-of-offload",
        entries=HOST,
        shows=(r"(?i:offload_optimizer|offload_param|cpu_offload|CPUAdam|cpu adam|ZeRO-?Offload)",),
        cause=(
            "The machine ran out of memory: weights or the optimizer state are offloaded to host memory, which "
            "takes 12 to 16 bytes per parameter for Adam in fp32, and all ranks of the node share it."
        ),
        remedy=(
            "offload less (no offload_param, or no offload at all with more GPUs), offload to an NVMe disk "
            "(DeepSpeed, device: nvme), or use fewer ranks per node or machines with more memory"
        ),
    ),
    EvidenceRule(
        id="host-memory-of-map",
        entries=HOST,
        shows=(r"(?i:\bMap(?: \(num_proc=(?P<count>\d{1,4})\))?:|tokeniz|num_proc|Generating \w{1,20} split)",),
        unless=r"\bloss\b['\"]?\s{0,3}[=:]\s{0,3}\d",
        cause=(
            "The machine ran out of memory while the dataset was being prepared: each map process (num_proc) on "
            "each rank holds a part of it."
        ),
        remedy=(
            "use dataset.map(..., num_proc=4, writer_batch_size=200), with fewer processes than before; or "
            "prepare the dataset once before the job, or on one rank first (with "
            "training_args.main_process_first():)"
        ),
    ),
    EvidenceRule(
        id="host-memory-grew",
        entries=HOST,
        shows=(EPOCH,),
        unless=r"(?i:\bsaving\b|evaluat|validat)",
        cause=(
            "Host memory use grew until the host ran out of memory: the job completed an epoch and failed in "
            "epoch {epoch}{later}. Usually each DataLoader worker copies the Python lists or dictionaries of the "
            "dataset as it reads them, or the script collects results in a list."
        ),
        remedy=(
            "keep the samples in a numpy array, a tensor or an Arrow file instead of Python lists, use fewer workers "
            "(num_workers=2) without persistent_workers, and collect only numbers (loss.item()); otherwise, use "
            "machines with more memory"
        ),
    ),
)
# Tried after the rules in gpus.py, which look at the frames of the step in which memory ran out.
LATE_RULES: tuple[EvidenceRule, ...] = (
    *(
        EvidenceRule(
            id=f"memory-grew-{number}",
            entries=FULL,
            shows=(pattern, EPOCH),
            unless=rf"{BESIDE}|(?i:\bresum)",
            cause=(
                "GPU memory use grew until the GPU ran out of memory: the first epoch completed with the same "
                "data and model, and the failure was in epoch {epoch}{later}. Most likely the script keeps "
                "tensors together with the graph that computed them, such as losses or outputs that are added up "
                "or collected in a list."
            ),
            remedy=LEAK,
            condition=is_own,
        )
        for number, pattern in enumerate(ALL_TOTALS)
    ),
    EvidenceRule(
        id="memory-of-one-step",
        entries=FULL,
        shows=(
            r"\bloss\b['\"]?\s{0,3}[=:]\s{0,3}\d",
            r"(?i:max_(?:seq_)?len|truncat|seq(?:uence)?_?len|input_ids|padding|tokens?\b|transformers/models/|modeling_\w{1,40}\.py)",
        ),
        unless=BESIDE,
        cause=(
            "The GPU ran out of memory during training, not in the first step: this batch needs more memory than "
            "earlier ones, usually because its samples are longer, or memory use grows from step to step."
        ),
        remedy=(
            "limit the length of the samples (max_length, truncation) or group them by length with fewer samples "
            "per batch; use gradient checkpointing; if memory use grows from step to step although the samples are "
            "equally long, keep only loss.item() and .detach()ed tensors"
        ),
    ),
)
