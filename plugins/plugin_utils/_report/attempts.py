# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The attempts of a run that restarts by itself, in its report and in the log book."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_mappings,
    to_timestamp,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

MAX_ATTEMPTS = 100


def describe_attempts(result: Mapping[str, Any]) -> list[str]:
    """Return one line for each attempt of a run: how long it took, how it ended, and on which node."""
    lines = []
    for record in to_mappings(result.get("attempts"), MAX_ATTEMPTS):
        started, ended = to_timestamp(record.get("started")), to_timestamp(record.get("ended"))
        seconds = max(0.0, ended - started) if started is not None and ended is not None else 0.0
        node = clean_text(record.get("node"), 100)
        location = f" on {node}" if node else ""
        end_class = clean_text(record.get("end_class"), 40)
        lines.append(f"{to_int(record.get('number'))}: {end_class}{location} after {format_duration(seconds)}")
    return lines
