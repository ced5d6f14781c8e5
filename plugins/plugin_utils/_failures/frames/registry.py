# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All rules for exceptions, by topic; the first matching rule applies."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames import (
    code,
    files,
    libraries,
    parallel,
    python_versions,
    services,
    training,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPICS: dict[str, tuple[FrameRule, ...]] = {
    parallel.TOPIC: parallel.RULES,
    python_versions.TOPIC: python_versions.RULES,
    training.TOPIC: training.RULES,
    libraries.TOPIC: libraries.RULES,
    files.TOPIC: files.RULES,
    services.TOPIC: services.RULES,
    code.TOPIC: code.RULES,
}
RULES = tuple(rule for rules in TOPICS.values() for rule in rules)
