# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read data mounts from their units, and summarize their contents so that nodes can be compared."""

from __future__ import annotations

import hashlib
import os

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Iterable

UNITS = "/etc/systemd/system"
MARK = "# Written by muster.training.data_mount; changes are lost."
PROBE = ".muster-probe-"  # prefix of files that are written to verify a mount and then removed


def parse_unit(text: str) -> dict[str, dict[str, str]]:
    """Return {mount point: {"type", "source"}} from a unit written by data_mount, {} from other units."""
    if not text.startswith(MARK):
        return {}
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    value = {name: fields.get(name, "").replace("%%", "%") for name in ("Where", "What", "Type")}
    return {value["Where"]: {"type": value["Type"], "source": value["What"]}}


def summarize_names(names: Iterable[str]) -> dict[str, Any]:
    """Return the number and a digest of names, regardless of order; probes are ignored."""
    visible_names = sorted(os.fsencode(name) for name in names if not name.startswith(PROBE))
    return {"count": len(visible_names), "digest": hashlib.sha256(b"\0".join(visible_names)).hexdigest()[:32]}
