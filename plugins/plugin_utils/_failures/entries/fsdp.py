# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of FullyShardedDataParallel and fully_shard."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "FSDP"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="fsdp-mixed-dtypes",
        title="FSDP got weights of different types",
        example="ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        texts=(
            r"Must flatten tensors with uniform dtype",
            r"`FlatParameter` requires uniform dtype",
        ),
        cause=(
            "FSDP joins the weights of a layer into one tensor, but some are bf16 or fp16 while others are fp32; "
            "causes are adapters (LoRA), norms, quantized layers, or a model that was loaded in a different "
            "precision on some ranks."
        ),
        remedy=(
            "load all weights in one precision (set torch_dtype=torch.bfloat16, and for QLoRA also "
            "bnb_4bit_quant_storage=torch.bfloat16), and cast the rest with model.to(torch.bfloat16); or use "
            "FSDP2 (fully_shard), which allows frozen weights of another type. With accelerate, set "
            "fsdp_cpu_ram_efficient_loading: true and fsdp_use_orig_params: true"
        ),
        source="axolotl-ai-cloud/axolotl#1494",
    ),
    CatalogueEntry(
        id="fsdp-gradient-dtypes",
        title="The gradients of an FSDP2 group have different types",
        example="AssertionError: FSDP reduce-scatter expects uniform gradient dtype but got {torch.bfloat16, "
        "torch.float32}",
        texts=(r"reduce-scatter expects uniform gradient dtype",),
        cause=(
            "fully_shard reduces the gradients of a group as one tensor, but some are bf16 and others fp32. With "
            "gradient accumulation, a parameter that received its first gradient in the last micro-batch, or an "
            "unused parameter, has param_dtype, while the others were accumulated in reduce_dtype; or layers were "
            "created in different precisions."
        ),
        remedy=(
            "use one type for both with MixedPrecisionPolicy(param_dtype=torch.bfloat16, "
            "reduce_dtype=torch.bfloat16), or exchange the gradients of each micro-batch with "
            "set_requires_gradient_sync(True); let every parameter take part in each step, and load all weights "
            "in one precision; or try a newer torch version, which may contain a fix"
        ),
        source="pytorch/pytorch#196996",
    ),
    CatalogueEntry(
        id="fsdp-layer-class",
        title="FSDP cannot find the layer class to wrap",
        example="Exception: Could not find the transformer layer class to wrap in the model.",
        texts=(r"Could not find the transformer layer class(?: \w{1,80})? (?:to wrap )?in the model",),
        cause=(
            "The accelerate or Trainer configuration names a layer class (fsdp_transformer_layer_cls_to_wrap) that "
            "this model does not have."
        ),
        remedy=(
            "specify the model's own block class, such as LlamaDecoderLayer, Qwen2DecoderLayer or BertLayer "
            "(print(model) shows it); or set fsdp_auto_wrap_policy: SIZE_BASED_WRAP. If you did not intend to "
            "use FSDP, remove ~/.cache/huggingface/accelerate/default_config.yaml on each node"
        ),
        source="huggingface/accelerate#1943",
    ),
    CatalogueEntry(
        id="fsdp-device",
        title="A rank's model is on a GPU other than the rank's own",
        example="ValueError: Inconsistent compute device and `device_id` on rank 3: cuda:0 vs cuda:3",
        texts=(r"[Ii]nconsistent compute device and ?[`']device_id ?[`'] on rank",),
        cause=(
            "The model was loaded onto a GPU other than this rank's own, either because each rank loads it onto "
            "cuda:0 or because of device_map. FSDP expects it on the CPU or on the rank's own GPU."
        ),
        remedy=(
            "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the model is created, and load the "
            "model without device_map and without .to('cuda:0'). With accelerate on several nodes, use the same "
            "configuration on each node, apart from machine_rank"
        ),
        source="huggingface/accelerate#2963",
    ),
    CatalogueEntry(
        id="fsdp-nested-root",
        title="A part of an FSDP model was used on its own",
        example="RuntimeError: Non-root FSDP instance's `_is_root` should not have been set yet or should have been "
        "set to "
        "`False`",
        texts=(r"`?_is_root`? should not have been set",),
        cause=(
            "An inner FSDP module was run, or its state was read, before the outer one: a submodule is called or "
            "saved, or its state_dict is taken, before the first forward pass of the whole model, which makes the "
            "submodule its own root."
        ),
        remedy=(
            "run the forward pass of the whole model first, and take the state_dict only from the outermost module"
        ),
        source="pytorch/pytorch#113496",
    ),
)
