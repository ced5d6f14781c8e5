# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine a checkpoint's step from its name."""

from __future__ import annotations

import re

# The first pattern that matches is used: epoch=3-step=40 is step 40.
STEP = (
    (
        re.compile(r"(?:^|[^a-z])(?:global_?)?(?:step|iter|iteration|batch)s?[-_=.]*([0-9]{1,15})(?![0-9])", re.I),
        "step",
    ),
    (re.compile(r"(?:^|[^a-z])ep(?:och)?s?[-_=.]*([0-9]{1,15})(?![0-9])", re.I), "epoch"),
    (re.compile(r"(?:^|[^a-z])(?:checkpoint|ckpt|chkpt|cp|model|state)s?[-_=.]*([0-9]{1,15})(?![0-9])", re.I), "step"),
    (re.compile(r"^([0-9]{1,15})(?:\.[a-z]+)?$", re.I), "step"),
)


def step_of_name(name: str) -> tuple[int | None, str]:
    """Return the step in a file or directory name and its unit ("step" or "epoch"), or None."""
    for pattern, unit in STEP:
        match = pattern.search(name)
        if match:
            return int(match[1]), unit
    return None, "step"
