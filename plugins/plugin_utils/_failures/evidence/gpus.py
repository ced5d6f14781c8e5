# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about GPUs: several ranks on one GPU, more ranks than GPUs, and what is using up the memory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.nccl import TRAINED
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Which GPU, and what fills it"
SHARED_GPU = ("nccl-duplicate-gpu", "nccl-invalid-usage")
FULL = ("cuda-out-of-memory", "cuda-driver-out-of-memory")
OWN_GPU = (
    "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) at the start of each rank, before init_process_group, "
    "and use that device in .to(...) and device_ids"
)
FEWER_RANKS = (
    "start as many ranks as the node has GPUs: leave nproc_per_node out, or use -e "
    "nproc_per_node={gpus_per_node} (accelerate's num_processes counts all nodes; under srun, use one task per "
    "node if it starts torchrun). Run `nvidia-smi -L` to list the GPUs, and make sure that CUDA_VISIBLE_DEVICES, "
    "the scheduler and the container do not hide any of them (docker run --gpus all)"
)
UNITS = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
SIZE = re.compile(r"([\d.]{1,12}) ([KMG]iB)")
# torch's message about a full GPU, before 2.1 and since.
OLD_TOTALS = (
    r"GPU (?P<gpu>\d{1,3}); (?P<total>[\d.]{1,8} [MG]iB) total capacity; [^\n]{0,80}already allocated; "
    r"(?P<free>[\d.]{1,8} (?:bytes|[KMG]iB)) free; (?P<own>[\d.]{1,8} [KMG]iB) reserved"
)
# Before 1.4, "cached" excludes memory that is allocated.
OLDEST_TOTALS = (
    r"GPU (?P<gpu>\d{1,3}); (?P<total>[\d.]{1,8} [MG]iB) total capacity; (?P<own>[\d.]{1,8} [KMG]iB) already "
    r"allocated; "
    r"(?P<free>[\d.]{1,8} (?:bytes|[KMG]iB)) free; [\d.]{1,8} (?:bytes|[KMG]iB) cached"
)
NEW_TOTALS = (
    r"GPU (?P<gpu>\d{1,3}) has a total capaci?ty of (?P<total>[\d.]{1,8} [MG]iB) of which "
    r"(?P<free>[\d.]{1,8} (?:bytes|[KMG]iB)) is free\.(?:[^\n]{0,2000}?this process|"
    r"(?![^\n]{0,2000}this process)[^\n]{0,400}?Process \d{1,10}) has "
    r"(?P<own>[\d.]{1,8} [KMG]iB) memory "
    r"in use"
)
UNUSED = (
    r"Tried to allocate (?P<requested>[\d.]{1,8} [MG]iB)[^\n]{0,600}?(?P<allocated>[\d.]{1,8} [KMG]iB) is allocated "
    r"by PyTorch,[^\n]{0,120}? (?P<unused>[\d.]{1,8} [MG]iB) is reserved by PyTorch but unallocated"
)
MIN_FRAGMENTED = 1024.0  # MiB; less than this is always reserved but unallocated
# fraction of the process's memory; if less than this is unallocated, the memory is really in use
FRAGMENTED_SHARE = 0.1
OTHERS_SHARE = 0.15  # fraction of the GPU's memory at or above which other processes that use it are named


def parse_mib(text: str) -> float:
    """Convert a size from torch's message to MiB; return 0 for a few bytes."""
    match = SIZE.search(text)
    return float(match[1].strip(".") or 0) * UNITS[match[2]] if match and match[1].count(".") < 2 else 0.0


def used_by_others(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether other processes are using a significant part of the GPU's memory."""
    total = parse_mib(groups["total"])
    return total - parse_mib(groups["free"]) - parse_mib(groups["own"]) > OTHERS_SHARE * total


def is_fragmented(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether unallocated reserved memory is at least the requested size and a large share of all memory."""
    requested, allocated, unused = (parse_mib(groups[name]) for name in ("requested", "allocated", "unused"))
    return unused >= max(requested, MIN_FRAGMENTED, FRAGMENTED_SHARE * (allocated + unused)) and requested > 0


def is_crowded(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether a node has more ranks than GPUs."""
    return facts.crowded


def wraps_around(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether two ranks share a GPU as if each rank used the GPU given by its rank modulo the number of GPUs."""
    ranks = sorted((int(groups["rank"]), int(groups["other"])))
    return ranks[0] > 0 and ranks[1] - ranks[0] > 1


def has_room(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether the local rank is the number of a GPU that is visible to the process."""
    return int(groups["local"]) < len(groups["visible"].split(","))


def is_not_first_local_rank(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the failed rank is not the first one on its node but uses GPU 0."""
    if facts.rank is None or not facts.slots or groups["gpu"] != "0":
        return False
    rank = facts.rank
    for slots in facts.slots:
        if rank < slots:
            return rank > 0
        rank -= slots
    return False


def frame_in(pattern: str) -> str:
    """Return an expression that matches a traceback frame whose function matches a pattern."""
    return rf'File "[^"\n]{{1,300}}", line \d{{1,9}}, in (?P<function>\w{{0,40}}(?:{pattern})\w{{0,40}})$'


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="container-without-devices",
        entries=("container-lost-gpus",),
        shows=(r"No CUDA GPUs are available|_lazy_init|\b_cuda_init\b",),
        unless=TRAINED,
        cause=(
            "The container had no access to the GPUs from the start, although the node has them: the container "
            "toolkit does not allow access to the GPU devices (no-cgroups = true in its configuration), or systemd "
            "reloaded its units after the container had been created."
        ),
        remedy="on that node: sudo sed -i 's/^#\\?no-cgroups *=.*/no-cgroups = false/' "
        "/etc/nvidia-container-runtime/config.toml (rootless Docker needs true), then start a new container",
    ),
    EvidenceRule(
        id="barrier-on-first-gpu",
        entries=("nccl-first-collective", "nccl-time-out", "nccl-watchdog-stuck"),
        shows=(
            r"(?:[Rr]ank ?(?P<rank>[1-7])\]) {1,3}using GPU 0 (?:to perform barrier )?as (?:the )?devices? used by "
            r"this "
            r"process (?:is|are) currently unknown",
        ),
        cause=(
            "No device was set before the barrier, so torch guessed GPU 0 for rank {rank}. If that GPU belongs to "
            "another rank of its node, the ranks wait for each other forever."
        ),
        remedy=f"{OWN_GPU}; or init_process_group(device_id=torch.device('cuda', local_rank))",
    ),
    EvidenceRule(
        id="cuda-call-of-nccl",
        entries=("nccl-cuda-error",),
        shows=(r"NCCL WARN [^\n]{0,80}Cuda failure (?:\d{1,4} )?'(?P<failure>[^'\n]{3,120})'",),
        cause=(
            "A CUDA call failed inside NCCL: {failure}. Usually the driver, torch and NCCL are incompatible, several "
            "ranks are using one GPU, or an earlier job left the GPU in a bad state."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to check GPUs and drivers and to find processes that are still "
            f"using a GPU; {OWN_GPU}; to install a torch build that matches the driver, run ansible-playbook "
            "site.yml --tags python_env,pytorch"
        ),
    ),
    EvidenceRule(
        id="more-ranks-than-gpus",
        entries=(*SHARED_GPU, "invalid-device-ordinal", "device-id-invalid"),
        shows=(),
        cause="A node runs more ranks ({ranks_per_node}) than it has GPUs ({gpus_per_node}).",
        remedy=FEWER_RANKS,
        condition=is_crowded,
        certain=True,
    ),
    EvidenceRule(
        id="more-processes-than-gpus",
        entries=SHARED_GPU,
        shows=(r"^[^\n]{0,60}Num processes: (?P<count>\d{1,5})\b|Distributed environment: [^\n]{1,60}Backend: nccl",),
        cause=(
            "More processes were started than this node has GPUs, or than there are GPUs visible to the job: "
            "accelerate gives each process the GPU of its local rank, and starts over at cuda:0 when there are no "
            "more GPUs, so several processes use the same GPU."
        ),
        remedy=FEWER_RANKS,
    ),
    EvidenceRule(
        id="ranks-wrap-around",
        entries=SHARED_GPU,
        shows=(r"Duplicate GPU detected : rank (?P<rank>\d{1,6}) and rank (?P<other>\d{1,6}) both",),
        cause=(
            "More processes were started than this node has GPUs: each process uses its rank modulo the number "
            "of GPUs as the GPU number, so ranks {rank} and {other} use the same GPU."
        ),
        remedy=FEWER_RANKS,
        condition=wraps_around,
    ),
    EvidenceRule(
        id="gpus-requested",
        entries=("invalid-device-ordinal",),
        shows=(
            r"You requested (?:gpu|GPUs): \[(?P<requested>[\d, ]{1,60})\]\s{1,40}But your machine only has: "
            r"\[(?P<visible>[\d, ]{0,60})\]",
        ),
        cause=(
            "The script requests the GPUs {requested}, but the process sees only {visible}: the scheduler, the "
            "container or CUDA_VISIBLE_DEVICES gives it fewer GPUs than the script uses."
        ),
        remedy=(
            "request as many GPUs as the script uses: under Slurm, use #SBATCH --gres=gpu:N (or "
            "--gpus-per-node=N); in a container, use docker run --gpus all; and do not set CUDA_VISIBLE_DEVICES "
            "in launch_environment. Or set the Trainer's devices (gpus) to what `nvidia-smi -L` lists there"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="gpu-chosen-by-framework",
        entries=("invalid-device-ordinal",),
        shows=(
            r"LOCAL_RANK: (?P<local>\d{1,3}) -? ?CUDA_VISIBLE_DEVICES: \[(?P<visible>[\d,]{1,60})\]",
            r"set_device\(self\.root_device\)|/(?:pytorch_lightning|lightning)/",
        ),
        cause=(
            "Lightning itself chose a GPU that this node does not have, although the GPU of the local rank "
            "{local} is visible ({visible}). This is a bug in this version with several nodes, or the Trainer's "
            "num_nodes and devices differ from what was started."
        ),
        remedy="upgrade pytorch-lightning (ansible-playbook site.yml --tags python_env); set Trainer(num_nodes=NODES, "
        "devices=GPUS_PER_NODE) to what the launcher starts",
        condition=has_room,
    ),
    EvidenceRule(
        id="gpu-by-global-rank",
        entries=("invalid-device-ordinal", "device-id-invalid"),
        shows=(
            r"(?:set_device\(|\.cuda\(|device\(|device_ids=\[)\s{0,2}(?:f?['\"]cuda:\{)?(?P<name>(?:args\.|self\.|opt\.)?"
            r"(?:global_)?rank|(?:torch\.distributed|dist)\.get_rank\(\))\b",
        ),
        cause=(
            "The script selects its GPU by {name}, the global rank, which exceeds the number of GPUs on all nodes "
            "but the first."
        ),
        remedy="use the local rank: int(os.environ['LOCAL_RANK']), or rank % torch.cuda.device_count()",
    ),
    EvidenceRule(
        id="memory-gathered-objects",
        entries=FULL,
        shows=(frame_in("all_gather_object|gather_object|broadcast_object"),),
        cause=(
            "{function} copies the objects that it exchanges, as bytes, into the memory of the current GPU, which is "
            "full. Without torch.cuda.set_device, all ranks of a node use GPU 0, and a gather needs room for the "
            "objects of all ranks."
        ),
        remedy=(
            f"{OWN_GPU}; send less (numbers instead of predictions), or use the CPU: call group = "
            'dist.new_group(backend="gloo") once on all ranks, and pass group=group to {function}'
        ),
    ),
    EvidenceRule(
        id="memory-of-wrong-gpu",
        entries=FULL,
        shows=(r"\bGPU (?P<gpu>0)(?:;| has a total)",),
        cause=(
            "This rank uses GPU 0, which belongs to another rank of its node, and several ranks are filling its memory."
        ),
        remedy=f"{OWN_GPU}; use torch.load(..., map_location='cpu') for checkpoints",
        condition=is_not_first_local_rank,
        certain=True,
    ),
    EvidenceRule(
        id="memory-of-other-ranks",
        entries=FULL,
        shows=(
            r"\bGPU 0 has a total capaci?ty of [^\n]{1,80} is free\.(?: Process \d{1,10} has (?P<share>[\d.]{1,8} "
            r"[MG]iB) memory in use\.){2,16} Including non-PyTorch memory",
        ),
        cause="Several other processes hold memory on GPU 0 ({share} each or similar): most likely the other ranks of "
        "this node, which loaded a checkpoint onto it, or used CUDA before they chose their own GPU.",
        remedy=(
            f"use torch.load(..., map_location='cpu') for checkpoints; {OWN_GPU}. Run `nvidia-smi` on that node "
            "to see whether the processes belong to this job; to end processes that an earlier job left behind, "
            "run ansible-playbook stop.yml"
        ),
    ),
    *(
        EvidenceRule(
            id=f"memory-of-others-{number}",
            entries=FULL,
            shows=(pattern,),
            cause=(
                "Other processes hold much of the memory of GPU {gpu}: this process has {own} of {total}, and "
                "only {free} is free. The other processes are left over from an earlier job, belong to another "
                "user, or are other ranks that use the same GPU."
            ),
            remedy=(
                "run `nvidia-smi` on that node and ansible-playbook preflight.yml to find the processes; to end what "
                f"muster started, run ansible-playbook stop.yml. If they are ranks of this job, {OWN_GPU}, and use "
                "torch.load(..., map_location='cpu')"
            ),
            condition=used_by_others,
        )
        for number, pattern in enumerate((NEW_TOTALS, OLD_TOTALS, OLDEST_TOTALS))
    ),
    EvidenceRule(
        id="memory-fragmented",
        entries=FULL,
        shows=(UNUSED,),
        cause=(
            "The memory is fragmented: {unused} is reserved but not in use, and no free block is large enough for "
            "the requested {requested}. Varying sample lengths cause this."
        ),
        remedy=(
            'use -e \'{{"launch_environment": {{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}}}\'; '
            "otherwise use a smaller batch, or samples of equal length"
        ),
        condition=is_fragmented,
    ),
    EvidenceRule(
        id="memory-at-save",
        entries=FULL,
        shows=(frame_in("save_model|save_checkpoint|state_dict|summon_full|full_tensor|consolidat|_zero3_"),),
        cause=(
            "The GPU ran out of memory while the model was being saved ({function}), because the full weights are "
            "gathered on the GPU."
        ),
        remedy=(
            "gather on the CPU with FullStateDictConfig(offload_to_cpu=True, rank0_only=True), or save shards "
            '(SHARDED_STATE_DICT; for DeepSpeed, use "stage3_gather_16bit_weights_on_model_save": false and '
            "zero_to_fp32.py)"
        ),
    ),
    EvidenceRule(
        id="memory-at-evaluation",
        entries=FULL,
        shows=(frame_in("eval|validat|predict|test_step|test_epoch|nested_concat|generate"),),
        unless=r", in (?:backward|training_step)$",
        cause=(
            "The GPU ran out of memory during evaluation ({function}), which keeps the predictions of all batches on "
            "the GPU, uses a larger batch or longer samples than training, or computes gradients."
        ),
        remedy=(
            "run the evaluation under `with torch.no_grad():`; move results to the CPU after each batch (for the "
            "Trainer, use eval_accumulation_steps=1 and preprocess_logits_for_metrics); use a smaller "
            "per_device_eval_batch_size; call torch.cuda.empty_cache() before the evaluation"
        ),
    ),
    EvidenceRule(
        id="memory-of-optimizer",
        entries=FULL,
        shows=(
            r"(?:exp_avg|torch\.zeros_like\(p|state\[['\"]momentum|_init_group|_multi_tensor_adam|initialize_optimizer_states|"
            r"flatten_dense_tensors_aligned|_init_state)",
        ),
        cause=(
            "The GPU ran out of memory when the optimizer created its state, which with Adam takes two numbers "
            "(8 bytes) per parameter: the model fits, but its optimizer state does not."
        ),
        remedy=(
            "shard the optimizer across the ranks with ZeRO stage 2 or 3, or FSDP; offload it to the host "
            "(offload_optimizer); or use a smaller one: 8-bit Adam (bitsandbytes), Adafactor or LoRA. A smaller "
            "batch helps only if the shortfall is small"
        ),
    ),
    EvidenceRule(
        id="memory-of-logits",
        entries=FULL,
        shows=(r"\blogits\.float\(\)|\blogits\.to\(torch\.float32\)|lm_head\(|F\.cross_entropy\(|, in cross_entropy$",),
        cause=(
            "The GPU ran out of memory for the logits or their loss, which need several copies, each of 4 bytes "
            "times the vocabulary size for each token in the batch."
        ),
        remedy=(
            "reduce the number of tokens per rank and step with a smaller batch and more gradient accumulation, "
            "or with shorter samples. Or use a fused loss that never stores all logits (use_liger_kernel=True "
            "for the Trainer, cut_cross_entropy). ZeRO and FSDP do not shard the logits"
        ),
    ),
    EvidenceRule(
        id="memory-at-load",
        entries=FULL,
        shows=(frame_in("from_pretrained|load_model|_load_state_dict_into|dispatch_model"),),
        unless=r", in (?:forward|backward|training_step|train_step)$",
        cause=(
            "The GPU ran out of memory while the model was being loaded ({function}): the weights alone do not "
            "fit on each rank's GPU, since data parallelism keeps all of them on every GPU."
        ),
        remedy=(
            "shard the weights with ZeRO stage 3 (with zero.Init, before from_pretrained) or FSDP with "
            "fsdp_cpu_ram_efficient_loading; load in bf16 (torch_dtype=torch.bfloat16) or in 4 bits; do not use "
            "device_map, and use torch.load(..., map_location='cpu')"
        ),
    ),
)
