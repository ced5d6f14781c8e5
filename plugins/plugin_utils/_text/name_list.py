# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of names in messages."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.muster.training.plugins.module_utils._files.name_list import format_names


def format_list(items: Iterable[str], limit: int = 6) -> str:
    """Join names for a message: the first `limit` of them, and the number of the others."""
    return format_names(items, limit)
