# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format lists of names for messages."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Iterable


def format_names(names: Iterable[object], limit: int) -> str:
    """Join names for a message: the first `limit` names and the number of remaining ones."""
    texts = [str(name) for name in names]
    text = ", ".join(texts[:limit])
    return text if len(texts) <= limit else f"{text} and {len(texts) - limit} more"
