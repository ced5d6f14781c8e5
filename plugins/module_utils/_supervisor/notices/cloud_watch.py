# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The child process that polls a provider's metadata service for notices, so that the supervisor never waits for it.

It writes one JSON object per new announcement to its standard output, a pipe, and ends with the supervisor.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import METADATA_POLL_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.sources import (
    poll_once,
    sources_here,
)


def main(arguments: list[str]) -> int:
    """Poll until the supervisor has ended; arguments: the run directory."""
    parent = os.getppid()
    plan = read_json(os.path.join(arguments[0], "plan.json")) or {}
    settings = plan.get("notices") or {}
    sources = sources_here(settings.get("metadata") or {})
    interval = settings.get("metadata_interval") or METADATA_POLL_INTERVAL
    written: set[str] = set()
    while sources and os.getppid() == parent:
        for source, address in sources:
            current = poll_once(source, address)
            kind = f"{source.name} {current['ends']}" if current else ""
            if current and kind not in written:
                written.add(kind)
                try:
                    sys.stdout.write(json.dumps({"source": source.name, **current}) + "\n")
                    sys.stdout.flush()
                except OSError:  # the supervisor has closed the pipe
                    return 0
        time.sleep(interval)
    return 0
