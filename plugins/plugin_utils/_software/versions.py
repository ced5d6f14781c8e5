# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare versions, and determine the drivers that CUDA needs."""

from __future__ import annotations

import re

# The oldest driver for each major CUDA version (docs.nvidia.com/deploy/cuda-compatibility, minor version
# compatibility); a driver supports every older CUDA version.
MIN_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the numbers in a version, so that 535.183.01 sorts after 535.54.03."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", text))


def public_version(version: str) -> str:
    """Return a version without its local part, such as 2.21.5 for 2.21.5+cuda12.4."""
    return version.partition("+")[0]
