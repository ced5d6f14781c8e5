# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures related to fp16 and bf16."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Precision"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="fp16-scale-at-minimum",
        title="No loss scale is small enough for fp16",
        example="Current loss scale already at minimum - cannot decrease scale anymore",
        texts=(
            r"Current loss scale already at minimum",
            r"FloatingPointError: Minimum loss scale reached",
            r"OVERFLOW! [^\n]{0,60}Attempted loss scale: 1(?:\.0)?, reducing to (?:1|0)\b",
        ),
        cause=(
            "Gradients are infinite or NaN at any scale: the model was trained in bf16 and overflows in fp16, the "
            "learning rate is too high, or the data contains NaN."
        ),
        remedy="use bf16 instead of fp16 if the GPUs support it (Ampere and newer); otherwise lower the learning "
        "rate, clip gradients, and check the first batch for NaN",
        source="ymcui/Chinese-LLaMA-Alpaca#534",
    ),
    CatalogueEntry(
        id="fp16-overflow",
        title="fp16 overflows at every step",
        example="[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        texts=(r"OVERFLOW! [^\n]{0,60}Attempted loss scale",),
        cause="The loss scale starts too high, so step after step is skipped. A few of these lines at the start are "
        "normal.",
        remedy=(
            'set "fp16": {"enabled": true, "initial_scale_power": 10} in the DeepSpeed configuration, or an even '
            "lower power if needed; or use bf16 if the GPUs support it"
        ),
        source="deepspeedai/DeepSpeed#386",
        recoverable=True,
        min_lines=6,
    ),
    CatalogueEntry(
        id="fp16-unsupported",
        title="fp16 is not supported here",
        example="ValueError: Type fp16 is not supported.",
        texts=(r"Type fp16 is not supported",),
        cause="DeepSpeed finds no GPU, or finds one that is too old for fp16 (older than Volta).",
        remedy=(
            'set "fp16": {"enabled": false} in the DeepSpeed configuration; to see which nodes have GPUs that do '
            "not support its precision, run ansible-playbook preflight.yml"
        ),
        source="deepspeedai/DeepSpeed#6723",
    ),
    CatalogueEntry(
        id="bf16-unsupported",
        title="bf16 is not supported here",
        example="ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
        "cuda>=11.0",
        texts=(
            r"Your setup doesn't support bf16",
            r"Bfloat16 is only supported on GPUs with compute capability",
        ),
        cause="The GPUs are older than Ampere and do not support bf16, or torch sees no GPU.",
        remedy="use --fp16 True instead of --bf16 True (and fp16 in the DeepSpeed configuration)",
        source="tatsu-lab/stanford_alpaca#133",
    ),
    CatalogueEntry(
        id="fp16-gradients",
        title="The weights themselves are fp16",
        example="ValueError: Attempting to unscale FP16 gradients.",
        texts=(r"Attempting to unscale FP16 gradients",),
        cause="The model was loaded in fp16, but mixed precision needs the trained weights in fp32.",
        remedy=(
            "load the model with torch_dtype=torch.float32 (with LoRA, only the trainable weights), or train in bf16"
        ),
        source="ShivamShrirao/diffusers#131",
    ),
    CatalogueEntry(
        id="dtype-mismatch",
        title="A layer receives an input in a different precision",
        example="RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
        texts=(
            r"(?:mat1|self) and mat2 (?:must|to) have the same dtype",
            r"expected scalar type (?:Half|Float|BFloat16) but found (?:Half|Float|BFloat16)",
        ),
        cause=(
            "The input of a layer is in fp32 and its weights are in bf16 or fp16, or the other way around: part "
            "of the model was cast, or the layer runs outside the autocast context used for training."
        ),
        remedy='run the forward pass in torch.autocast("cuda", dtype=torch.bfloat16), load the whole model in one '
        "precision (torch_dtype=...), or cast the input: x.to(layer.weight.dtype)",
        source="hpcaitech/ColossalAI#6169",
    ),
    CatalogueEntry(
        id="half-on-cpu",
        title="fp16 is used on the CPU",
        example="""RuntimeError: "LayerNormKernelImpl" not implemented for 'Half'""",
        texts=(r"not implemented for '(?:Half|BFloat16)'",),
        cause=(
            "The model or a tensor is in fp16, but on the CPU, where torch does not implement this operation: the "
            "model was not moved to the GPU, or torch sees no GPU."
        ),
        remedy=(
            "move the model and inputs to the GPU (.cuda()); to see the GPUs of each node, run ansible-playbook "
            "ping.yml. On nodes without GPUs, use fp32 (--fp16 False) or bf16"
        ),
        source="facebookresearch/flores#30",
    ),
    CatalogueEntry(
        id="not-a-number",
        title="The loss or a gradient is not a number",
        example="RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        texts=(
            r"Function '\w{1,60}' returned nan values in its \d",
            r"Loss is (?:nan|inf|-inf), stopping training",
            r"probability tensor contains either `inf`, `nan`",
            r"found NaN in local grad norm",
        ),
        cause=(
            "Training diverged: the learning rate is too high, fp16 overflowed, a division or a logarithm "
            "received 0, or the data contains NaN."
        ),
        remedy=(
            "lower the learning rate or lengthen its warm-up, clip gradients (max_grad_norm=1.0), and use bf16 "
            "instead of fp16 if the GPUs support it. To find the operation, call "
            "torch.autograd.set_detect_anomaly(True). Resume from the last good checkpoint"
        ),
        source="pytorch/pytorch#51196",
    ),
)
