# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Weights that ZeRO 3 or FSDP has sharded across the ranks, used in ways that need the full weights."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Sharded weights"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="zero3-ranks-differ",
        title="The ranks are running different layers of a ZeRO 3 model",
        example="RuntimeError: disagreement between rank0 and rank7: rank0: [2, 3, 4], rank7: [2, 3, 5]",
        texts=(r"disagreement between rank0 and rank\d{1,7}",),
        cause=(
            "With ZeRO 3, all ranks must run the same layers in the same order. Here they do not: only some "
            "batches use certain experts, images or adapters, generate() ends sooner on some ranks, or only some "
            "ranks run an evaluation."
        ),
        remedy=(
            "use generate(synced_gpus=True); feed a dummy image or expert where a batch has none; for "
            "mixture-of-experts models, call deepspeed.utils.set_z3_leaf_modules(model, [BLOCK]); or use ZeRO 2"
        ),
        source="deepspeedai/DeepSpeed#5799",
    ),
    CatalogueEntry(
        id="zero3-not-gathered",
        title="A weight of a ZeRO 3 model was not gathered when it was needed",
        example="AssertionError: {'id': 853, 'status': 'NOT_AVAILABLE', 'numel': 0, 'ds_numel': 0, 'shape': (0,)}",
        texts=(
            r"assert param\.ds_status == ZeroParamStatus\.AVAILABLE",
            r"\{'id': \d{1,9}, 'status': '(?:NOT_AVAILABLE|INFLIGHT)', 'numel'",
        ),
        cause=(
            "DeepSpeed fetches weights in the order of earlier steps, and this step called layers in a different "
            "order, or called a layer outside the engine's forward pass. Possible causes are mixing training and "
            "generation, layers that depend on the data, gradient checkpointing with frozen parts, or a second "
            "model without an engine."
        ),
        remedy='set "stage3_prefetch_bucket_size": 0; upgrade DeepSpeed; call the model only through the engine, and '
        "gather weights that are read directly with deepspeed.zero.GatheredParameters(...); or use ZeRO 2",
        source="QwenLM/Qwen-VL#103",
    ),
    CatalogueEntry(
        id="zero3-mixed-dtypes",
        title="ZeRO 3 received weights of different types",
        example="AssertionError: assert len(set(t.dtype for t in tensors)) == 1",
        texts=(r"assert len\(set\(t\.dtype for t in tensors\)\) == 1",),
        cause=(
            "ZeRO 3 combines the weights into one buffer, but some have a different precision: neither fp16 nor "
            "bf16 is enabled in the DeepSpeed configuration although the model was loaded in half precision, or "
            "adapters and new layers are in fp32."
        ),
        remedy=(
            'enable the precision in which the model is loaded in the DeepSpeed configuration ("bf16": {"enabled": '
            '"auto"} with --bf16, or "fp16" for GPUs older than Ampere), and cast the remaining weights: '
            "model.to(torch.bfloat16)"
        ),
        source="richard-peng-xia/MMed-RAG#8",
    ),
    CatalogueEntry(
        id="sharded-weights-used-directly",
        title="Sharded weights are used outside the wrapped model's forward pass",
        example="RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet.",
        texts=(r"The tensor has a non-zero number of elements, but its data is not allocated yet",),
        cause=(
            "A weight's memory was freed. With FSDP or another sharding wrapper, weights exist only during the "
            "forward pass of the wrapped model: this call, such as generate(), a submodule's forward or a method "
            "of the unwrapped model, bypasses that forward pass. With torch.compile, a custom kernel is being "
            "traced."
        ),
        remedy=(
            "call the wrapped model itself first, or gather the weights: with FSDP.summon_full_params(model): "
            "...; for generate, use synced_gpus=True inside that block. With torch.compile, register the kernel "
            "with torch.library"
        ),
        source="pytorch/pytorch#82461",
        weak=True,
    ),
    CatalogueEntry(
        id="bitsandbytes-empty-shard",
        title="bitsandbytes received an empty shard",
        example="Error invalid configuration argument at line 119 in file /src/csrc/ops.cu",
        texts=(r"Error invalid configuration argument at line \d{1,5} in file \S{0,200}csrc/ops\.cu",),
        cause=(
            "An 8-bit bitsandbytes optimizer launched a GPU kernel for a tensor with no elements: with FSDP or "
            "ZeRO 3, a rank's shard of a weight can be empty."
        ),
        remedy=(
            "use one of torch's optimizers (optim: adamw_torch or adamw_torch_fused), or the one in the DeepSpeed "
            "configuration; 8-bit optimizers (adamw_bnb_8bit, paged_adamw_8bit) need DDP or ZeRO 1 or 2"
        ),
        source="axolotl-ai-cloud/axolotl#1527",
    ),
)
