# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The attempts of an automatically restarted run, for its report and the logbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.attempt_losses import format_loss, loss_of
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_mappings,
    to_timestamp,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

MAX_ATTEMPTS = 100


def describe_attempts(result: Mapping[str, Any], knows_checkpoints: bool = False) -> list[str]:
    """Return one line for each attempt in a run: its duration, how it ended, the node that ended it, and the lost work.

    knows_checkpoints: whether the supervisors knew where the run's checkpoints are.
    """
    lines = []
    for record in to_mappings(result.get("attempts"), MAX_ATTEMPTS):
        started, ended = to_timestamp(record.get("started")), to_timestamp(record.get("ended"))
        seconds = max(0.0, ended - started) if started is not None and ended is not None else 0.0
        node = clean_text(record.get("node"), 100)
        location = f" on {node}" if node else ""
        end_class = clean_text(record.get("end_class"), 40)
        line = f"{to_int(record.get('number'))}: {end_class}{location} after {format_duration(seconds)}"
        numbers = {name: to_int(record.get(name)) for name in ("step", "last_step")}
        times = {"started": started or 0.0, "ended": ended or 0.0, "saved": to_timestamp(record.get("saved"))}
        unit = "epoch" if record.get("unit") == "epoch" else "step"
        checked = {"checkpoint": clean_text(record.get("checkpoint"), 100), "unit": unit, "end_class": end_class}
        loss = loss_of({**checked, **times, **numbers}, knows_checkpoints)
        lines.append(line if loss.steps == 0 else f"{line}, work lost: {format_loss(loss)}")
    return lines
