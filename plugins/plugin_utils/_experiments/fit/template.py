# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Handle job arguments that contain a placeholder for the batch size."""

from __future__ import annotations

from collections.abc import Sequence

PLACEHOLDER = "{batch_size}"


def fill_batch_size(args: str | Sequence[str], batch: int) -> str | list[str]:
    """Return the arguments with each placeholder replaced with the batch size."""
    if isinstance(args, str):
        return args.replace(PLACEHOLDER, str(batch))
    return [str(arg).replace(PLACEHOLDER, str(batch)) for arg in args]


def has_placeholder(args: str | Sequence[str]) -> bool:
    """Return whether the arguments contain the placeholder."""
    return PLACEHOLDER in (args if isinstance(args, str) else "\0".join(map(str, args)))
