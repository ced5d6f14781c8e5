# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the two packages involved in a call whose arguments the called function does not accept."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.tracebacks import Frame, RaisedError

CALLED = re.compile(r"(?P<path>(?:\w{1,60}\.){0,8})(?P<name>\w{1,80})\(\) (?:got|missing|takes)")
CALL = re.compile(r"(?P<name>[A-Za-z_]\w{0,80})\(")
# Names that other packages call, and the package that defines them.
DEFINED_IN = {
    "accelerate": ("Accelerator", "PartialState", "AcceleratorState", "unwrap_model", "init_empty_weights"),
    "torch": (
        "FSDP", "FullyShardedDataParallel", "DistributedDataParallel", "DDP", "DataLoader", "init_process_group",
        "init_device_mesh", "fully_shard", "all_reduce", "all_gather", "barrier", "new_group", "AdamW", "Adam",
        "GradScaler", "scaled_dot_product_attention", "load_state_dict", "Parameter", "checkpoint", "autocast",
        "save", "ProcessGroupNCCL",
    ),
    "transformers": (
        "TrainingArguments", "Seq2SeqTrainingArguments", "BitsAndBytesConfig", "GenerationConfig", "from_pretrained",
        "PretrainedConfig", "compute_loss",
    ),
    "peft": ("LoraConfig", "get_peft_model", "PeftModel", "prepare_model_for_kbit_training"),
    "trl": ("SFTTrainer", "SFTConfig", "DPOTrainer", "DPOConfig", "PPOTrainer", "PPOConfig", "GRPOTrainer"),
    "datasets": ("load_dataset", "load_from_disk", "concatenate_datasets", "Dataset"),
    "huggingface_hub": ("hf_hub_download", "snapshot_download", "HfApi", "cached_download"),
    "deepspeed": ("DeepSpeedEngine", "DeepSpeedConfig", "DeepSpeedCPUAdam", "FusedAdam", "init_distributed"),
    "vllm": ("LLM", "EngineArgs", "AsyncLLMEngine", "SamplingParams"),
    "pytorch_lightning": ("LightningModule", "LightningDataModule"),
    "httpx": ("Client", "AsyncClient"),
}  # fmt: skip
PACKAGE_OF = {name: package for package, names in DEFINED_IN.items() for name in names}


def package_pair(raised: RaisedError) -> tuple[str, str]:
    """Return the package that makes a call and the one that rejects its arguments; ("", "") if they are not both
    known.
    """
    frame = raised.innermost
    if frame is None or not frame.package or frame.package == "Python":
        return "", ""
    if "multiple values" in raised.message:  # an outer frame passes on what the inner one sets itself
        outer = next((name for name in outer_packages(raised) if name != frame.package), "")
        return (outer, frame.package) if outer else ("", "")
    callee = called_package(raised.message, frame)
    return (frame.package, callee) if callee and callee != frame.package else ("", "")


def outer_packages(raised: RaisedError) -> list[str]:
    """Return the packages of the frames outside the innermost one, innermost first."""
    names = [frame.package for frame in reversed(raised.frames[:-1])]
    return [name for name in names if name not in ("", "Python", "torch")]


def called_package(message: str, frame: Frame) -> str:
    """Return the package that defines the called function, or "" if unknown.

    Args:
        message: "Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'"; before Python 3.10
            without the class.
        frame: The frame that makes the call.
    """
    match = CALLED.search(message)
    if match is None:
        return ""
    parts = [part for part in match["path"].split(".") if part]
    if len(parts) > 1 and parts[0].islower():
        return parts[0]
    names = [*reversed(parts), match["name"], *(call["name"] for call in CALL.finditer(frame.source))]
    return next((PACKAGE_OF[name] for name in names if name in PACKAGE_OF), "")
