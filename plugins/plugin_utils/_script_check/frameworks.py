# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Frameworks that do some of a distributed script's work themselves."""

from __future__ import annotations

import re
from collections.abc import Collection

LIGHTNING = "lightning"
TRANSFORMERS = "transformers"
ACCELERATE = "accelerate"
DEEPSPEED = "deepspeed"
OTHER = "other"
ALL = frozenset({LIGHTNING, TRANSFORMERS, ACCELERATE, DEEPSPEED, OTHER})
# Each: its name, and a pattern for qualified names that the script imports or calls.
FRAMEWORKS = (
    (LIGHTNING, re.compile(r"(lightning|pytorch_lightning|lightning_fabric)(\.|$)")),
    (TRANSFORMERS, re.compile(r"(transformers|trl|sentence_transformers|setfit)\.(\w+\.)*\w*Trainer$")),
    (ACCELERATE, re.compile(r"accelerate\.(\w+\.)*Accelerator$")),
    (DEEPSPEED, re.compile(r"deepspeed\.(initialize|init_inference)$")),
    (
        OTHER,
        re.compile(
            r"(composer|ignite|megatron|nemo|mmengine|mmcv|detectron2|fairseq|horovod|colossalai|torch_xla|torchtune|"
            r"fastai|ray\.train|catalyst|torchtnt|determined|llmfoundry|axolotl|torch\.distributed\.rpc|accelerate\.notebook_launcher)(\.|$)"
        ),
    ),
)


def find_frameworks(imports: Collection[str], calls: Collection[str]) -> frozenset[str]:
    """Return the names of the frameworks that a program uses, based on the qualified names that it imports and
    calls.
    """
    names = {*imports, *calls}
    return frozenset(framework for framework, pattern in FRAMEWORKS if any(map(pattern.match, names)))
