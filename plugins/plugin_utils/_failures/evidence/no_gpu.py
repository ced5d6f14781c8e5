# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of why a check in the script found no GPU: the warning that torch printed before the check."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.driver import ENTRIES
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Why a check finds no GPU"
CHECKS = ("asserted-by-script", "asserted-by-package", "raised-by-script", "setting-refused")
# The last error in the log: an assertion or exception about CUDA as a whole.
CHECK = (
    r"assert torch\.cuda\.is_available\(\)|"
    r"^(?:\[?[\w :]{0,20}\]?:? ?)?[\w.]{0,60}(?:Error|Exception): (?i:[^\n]{0,80}"
    r"(?:\b(?:requires?|needs?|expects?) (?:at least one |an? )?(?:CUDA\b|(?:NVIDIA )?GPUs?\b(?! memory))|"
    r"\b(?:CUDA|GPUs?)(?: device)? (?:is|are|was) (?:not|un) ?available|\bno (?:CUDA|GPUs?)\b[^\n]{0,20}"
    r"(?:available|found|detected)))"
)
WARNED = (
    "driver-too-old-for-image",
    "driver-too-old",
    "driver-library-mismatch",
    "fabric-manager",
    "cuda-unknown-error",
)


def make_entry_rule(entry: CatalogueEntry) -> EvidenceRule:
    """Return the rule for a check that fails after an entry's message was printed."""
    return EvidenceRule(
        id=f"check-after-{entry.id}",
        entries=CHECKS,
        shows=(CHECK, "|".join(f"(?:{text})" for text in entry.texts)),
        cause="The script's check finds no GPU, and a message before it says why. " + escape_braces(entry.cause),
        remedy=escape_braces(entry.remedy),
        certain=True,
    )


def escape_braces(text: str) -> str:
    """Escape a text for use in a rule, so that its braces are not treated as fields."""
    return text.replace("{", "{{").replace("}", "}}")


RULES: tuple[EvidenceRule, ...] = (
    *(make_entry_rule(entry) for entry in ENTRIES if entry.id in WARNED),
    EvidenceRule(
        id="check-finds-no-gpu",
        entries=CHECKS,
        shows=(CHECK,),
        cause="The script's check finds no GPU: torch.cuda.is_available() is False on this node. The driver is missing "
        "or does not work, torch was installed without CUDA, or CUDA_VISIBLE_DEVICES, the scheduler or the container "
        "hides the GPUs.",
        remedy=(
            'run `nvidia-smi -L` and `python -c "import torch; print(torch.version.cuda, '
            'torch.cuda.device_count())"` on that node to see which of these is the cause. To see the GPUs of '
            "each node, run ansible-playbook ping.yml; to install the driver, run ansible-playbook site.yml "
            "--tags nvidia_driver. Remove CUDA_VISIBLE_DEVICES from launch_environment, and start a container "
            "with --gpus all"
        ),
    ),
)
