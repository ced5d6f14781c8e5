# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All evidence rules, by topic; the first rule that matches is used."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence import (
    checkpoints,
    compilers,
    devices,
    files,
    gpus,
    launchers,
    memory,
    names,
    nccl,
    network,
    no_gpu,
    out_of_step,
    packages,
    removed_names,
    scheduler,
    services,
    shared_files,
    symbols,
    training,
    waiting,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPICS: dict[str, tuple[EvidenceRule, ...]] = {
    training.TOPIC: training.RULES,
    out_of_step.TOPIC: out_of_step.RULES,
    waiting.TOPIC: waiting.RULES,
    names.TOPIC: names.RULES,
    launchers.TOPIC: launchers.RULES,
    nccl.TOPIC: nccl.RULES,
    network.TOPIC: network.RULES,
    memory.TOPIC: memory.RULES,
    compilers.TOPIC: compilers.RULES,
    devices.TOPIC: devices.RULES,
    no_gpu.TOPIC: no_gpu.RULES,
    nccl.LAST_TOPIC: nccl.LAST_RULES,
    gpus.TOPIC: gpus.RULES,
    memory.LATE_TOPIC: memory.LATE_RULES,
    packages.TOPIC: packages.RULES,
    symbols.TOPIC: symbols.RULES,
    services.TOPIC: services.RULES,
    removed_names.TOPIC: removed_names.RULES,
    shared_files.TOPIC: shared_files.RULES,
    files.TOPIC: files.RULES,
    scheduler.TOPIC: scheduler.RULES,
    checkpoints.TOPIC: checkpoints.RULES,
}
RULES = tuple(rule for rules in TOPICS.values() for rule in rules)
