# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All rules on evidence, by topic; the first that matches counts."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence import (
    checkpoints,
    files,
    gpus,
    launchers,
    names,
    nccl,
    network,
    packages,
    scheduler,
    waiting,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPICS: dict[str, tuple[EvidenceRule, ...]] = {
    waiting.TOPIC: waiting.RULES,
    names.TOPIC: names.RULES,
    launchers.TOPIC: launchers.RULES,
    nccl.TOPIC: nccl.RULES,
    network.TOPIC: network.RULES,
    nccl.LAST_TOPIC: nccl.LAST_RULES,
    gpus.TOPIC: gpus.RULES,
    packages.TOPIC: packages.RULES,
    files.TOPIC: files.RULES,
    scheduler.TOPIC: scheduler.RULES,
    checkpoints.TOPIC: checkpoints.RULES,
}
RULES = tuple(rule for rules in TOPICS.values() for rule in rules)
