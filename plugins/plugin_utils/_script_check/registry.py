# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All rules, in the order in which a script is adapted from one GPU to many nodes."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import Rule
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rules import (
    data,
    device,
    files,
    output,
    process_group,
)

RULES: tuple[Rule, ...] = (
    *process_group.RULES,
    *device.RULES,
    *data.RULES,
    *files.RULES,
    *output.RULES,
)
