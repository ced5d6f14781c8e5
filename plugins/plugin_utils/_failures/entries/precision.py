# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of fp16 and bf16."""

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
            r"OVERFLOW! [^\n]{0,60}Attempted loss scale: 1(?:\.0)?, reducing to (?:1|0)\b",
        ),
        cause="Gradients are infinite or NaN at any scale: the model was trained in bf16 and overflows in fp16, the "
        "learning rate is too high, or the data contain NaN.",
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
        remedy='"fp16": {"enabled": true, "initial_scale_power": 10} in the DeepSpeed configuration, lower if '
        "needed; or bf16 if the GPUs support it",
        source="deepspeedai/DeepSpeed#386",
        recoverable=True,
        min_lines=6,
    ),
    CatalogueEntry(
        id="fp16-unsupported",
        title="fp16 does not run here",
        example="ValueError: Type fp16 is not supported.",
        texts=(r"Type fp16 is not supported",),
        cause="DeepSpeed finds no GPU, or one that is too old for fp16 (before Volta).",
        remedy='"fp16": {"enabled": false} in the DeepSpeed configuration; ansible-playbook preflight.yml names the '
        "nodes whose GPUs do not support its precision",
        source="deepspeedai/DeepSpeed#6723",
    ),
    CatalogueEntry(
        id="bf16-unsupported",
        title="bf16 does not run here",
        example="ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
        "cuda>=11.0",
        texts=(r"Your setup doesn't support bf16",),
        cause="The GPUs are older than Ampere and do not support bf16, or torch sees no GPU.",
        remedy="--fp16 True instead of --bf16 True (and fp16 in the DeepSpeed configuration)",
        source="tatsu-lab/stanford_alpaca#133",
    ),
    CatalogueEntry(
        id="fp16-gradients",
        title="The weights themselves are fp16",
        example="ValueError: Attempting to unscale FP16 gradients.",
        texts=(r"Attempting to unscale FP16 gradients",),
        cause="The model was loaded in fp16, but mixed precision needs the trained weights in fp32.",
        remedy="load with torch_dtype=torch.float32 (LoRA: only the trainable weights), or train in bf16",
        source="ShivamShrirao/diffusers#131",
    ),
)
