# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of mismatched checkpoints: wrapper prefixes, placeholders for sharded weights, other ranks' files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Why a checkpoint does not match"
KEYS = ("checkpoint-keys", "checkpoint-shapes", "distributed-checkpoint-keys")
# The prefix of the weights' names, the wrapper that adds it, and the model inside it.
PREFIXES = (
    ("module.", "DistributedDataParallel or DeepSpeed", "model.module"),
    ("_orig_mod.", "torch.compile", "model._orig_mod"),
    ("_forward_module.", "Lightning's strategy", "model.module"),
    ("_fsdp_wrapped_module.", "FSDP", "model.module"),
    ("_checkpoint_wrapped_module.", "activation checkpointing", "model._checkpoint_wrapped_module"),
)


def is_ratio(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether two sizes differ by an integer factor, up to padding, as shards for different rank counts do."""
    small, large = sorted((int(groups["first"]), int(groups["second"])))
    factor = round(large / small) if small else 0
    return factor > 1 and abs(large - factor * small) <= factor * factor


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="checkpoint-of-placeholders",
        entries=KEYS,
        shows=(r"copying a param with shape torch\.Size\(\[[01]\]\) from checkpoint, the shape in current model is",),
        cause="The checkpoint has only placeholders (of size 0 or 1) in place of the weights: it was saved from a "
        "model "
        "that ZeRO stage 3 or FSDP had sharded, without gathering them.",
        remedy=(
            "run python zero_to_fp32.py CHECKPOINT_DIRECTORY OUTPUT (DeepSpeed puts the script there) to "
            "assemble full weights from DeepSpeed's files; for the next save, use engine.save_16bit_model, "
            '"stage3_gather_16bit_weights_on_model_save": true, or FULL_STATE_DICT with FSDP'
        ),
        certain=True,
    ),
    EvidenceRule(
        id="model-of-placeholders",
        entries=(*KEYS, "checkpoint-vocabulary"),
        shows=(
            r"from checkpoint, the shape in current model is torch\.Size\(\[0\]\)|"
            r"shape torch\.Size\(\[\d{1,9}, [\d, ]{1,60}\]\) from checkpoint, the shape in current model is "
            r"torch\.Size\(\[1\]\)",
        ),
        cause=(
            "The model is already sharded (ZeRO stage 3): its weights are only placeholders on this rank, so "
            "load_state_dict finds mismatched shapes."
        ),
        remedy=(
            "load the weights with from_pretrained or engine.load_checkpoint, or within "
            "deepspeed.zero.GatheredParameters(..., modifier_rank=0); or load them before deepspeed.initialize and "
            "without zero.Init"
        ),
        certain=True,
    ),
    *(
        EvidenceRule(
            id=f"checkpoint-has-prefix-{number}",
            entries=KEYS,
            shows=(rf"Unexpected key\(s\) in state_dict: \"{re.escape(prefix)}",),
            cause=(
                f"The names in the checkpoint begin with {prefix!r}, since the checkpoint was saved from the "
                f"{wrapper} wrapper."
            ),
            remedy=f"remove the prefix: model.load_state_dict({{{{name.removeprefix({prefix!r}): value for name, value "
            f"in state.items()}}}}); save {inner}.state_dict() (the inner model) next time",
            certain=True,
        )
        for number, (prefix, wrapper, inner) in enumerate(PREFIXES)
    ),
    EvidenceRule(
        id="checkpoint-of-peft",
        entries=KEYS,
        shows=(r"Unexpected key\(s\) in state_dict: \"base_model\.model\.",),
        cause=(
            "The checkpoint was saved from a model that peft (LoRA) had wrapped, but the model that it is loaded into "
            "is not wrapped."
        ),
        remedy=(
            "wrap the model with the same settings before load_state_dict: model = get_peft_model(model, "
            "lora_config); for a directory that save_pretrained wrote, use PeftModel.from_pretrained(model, "
            "DIRECTORY). To save plain weights, use model.merge_and_unload().state_dict()"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="checkpoint-of-adapters",
        entries=KEYS,
        shows=(r"Missing key\(s\) in state_dict: \"base_model\.model\.",),
        unless=r"Unexpected key\(s\) in state_dict",
        cause=(
            "The checkpoint contains only the weights that were trained (the adapter, LoRA), but it is being loaded "
            "into the whole model as if it contained all of the weights."
        ),
        remedy=(
            "upgrade transformers (4.38.2 or later), accelerate and peft together, which load the checkpoint with "
            "load_module_strict=False. In your own code, use engine.load_checkpoint(path, load_module_strict=False) "
            "or PeftModel.from_pretrained(model, path, is_trainable=True)"
        ),
        certain=True,
    ),
    *(
        EvidenceRule(
            id=f"model-has-prefix-{number}",
            entries=KEYS,
            shows=(rf"Missing key\(s\) in state_dict: \"{re.escape(prefix)}",),
            cause=(
                f"The names in the model begin with {prefix!r}, since the model is already wrapped by {wrapper}, but "
                "those in the checkpoint do not."
            ),
            remedy="load the checkpoint before the model is wrapped, or into the inner model: "
            f"{inner}.load_state_dict(state)",
            certain=True,
        )
        for number, (prefix, wrapper, inner) in enumerate(PREFIXES)
    ),
    EvidenceRule(
        id="model-of-peft",
        entries=KEYS,
        shows=(r"Missing key\(s\) in state_dict: \"base_model\.model\.",),
        cause=(
            "The model is already wrapped by peft (LoRA), which changes the names of its weights, but those in the "
            "checkpoint are the original ones."
        ),
        remedy="load the checkpoint before get_peft_model wraps the model",
        certain=True,
    ),
    EvidenceRule(
        id="optimizer-of-other-ranks",
        entries=("shapes-differ", "package-failed"),
        shows=(
            r"size of tensor a \((?P<first>\d{4,15})\) must match the size of tensor b \((?P<second>\d{4,15})\)",
            r"/torch/optim/|exp_avg|optimizer\.step\(",
        ),
        cause=(
            "The optimizer's saved state is from a run with a different number of ranks: a part has {first} "
            "elements here and {second} there."
        ),
        remedy=(
            "resume with the number of ranks that saved it; save and load the full optimizer state "
            "(FSDP.full_optim_state_dict); or use torch.distributed.checkpoint, which reshards"
        ),
        condition=is_ratio,
    ),
    EvidenceRule(
        id="model-has-inner-prefix",
        entries=KEYS,
        shows=(
            r"Missing key\(s\) in state_dict: \"(?P<name>[\w.]{1,100}\.(?:module|_orig_mod|_fsdp_wrapped_module)\.)",
            r"Unexpected key\(s\) in state_dict: ",
        ),
        cause=(
            "A part of the model is wrapped now ({name}), but was not when the checkpoint was saved, for example "
            "because the number of GPUs was different. The names therefore differ by the wrapper's prefix."
        ),
        remedy=(
            "load the checkpoint before that part is wrapped, or into the inner part: "
            "part.module.load_state_dict(...). Save the inner module from now on"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="checkpoint-has-inner-prefix",
        entries=KEYS,
        shows=(
            r"Missing key\(s\) in state_dict: ",
            r"Unexpected key\(s\) in state_dict: \"(?P<name>[\w.]{1,100}\.(?:module|_orig_mod|_fsdp_wrapped_module)\.)",
        ),
        cause=(
            "A part of the model was wrapped when the checkpoint was saved ({name}), but is not now, for example "
            "because the number of GPUs was different. The names therefore differ by the wrapper's prefix."
        ),
        remedy=(
            'rename the keys before loading: state = {{re.sub(r"\\.(module|_orig_mod|_fsdp_wrapped_module)\\.", ".", '
            "name): value for name, value in state.items()}}. Save the inner module from now on"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="optimizer-is-another",
        entries=("checkpoint-entry-missing",),
        shows=(r"KeyError: 'param_groups'",),
        cause=(
            "What the script passes to optimizer.load_state_dict is not an optimizer state: another object (such as "
            "the scheduler) was saved under that name, or the optimizer's state was left out or is stored in shards "
            "(DeepSpeed, FSDP)."
        ),
        remedy=(
            "inspect the saved object with print(torch.load(path, map_location='cpu')['optimizer'].keys()); "
            "correct the argument order of the save function, load sharded states with the framework "
            "(engine.load_checkpoint), or resume with the weights only"
        ),
    ),
)
