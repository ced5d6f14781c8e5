# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The job's arguments with a hole for the batch. Pure. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Sequence

HOLE = "{batch_size}"


def filled(words: str | Sequence[str], batch: int) -> str | list[str]:
    """The arguments with a batch in each hole."""
    if isinstance(words, str):
        return words.replace(HOLE, str(batch))
    return [str(word).replace(HOLE, str(batch)) for word in words]


def has_hole(words: str | Sequence[str]) -> bool:
    """Whether the arguments have a hole."""
    return HOLE in (words if isinstance(words, str) else "\0".join(map(str, words)))
