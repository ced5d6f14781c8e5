# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the job file on a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import context
from ansible._internal._datatag._tags import Origin


def find_job_file(job: Any) -> Path | None:
    """Return the path after -e of the file that a job was read from, or None if the job was specified elsewhere."""
    origin = Origin.get_tag(job)
    files = [
        Path(text[1:]).expanduser() for text in map(str, context.CLIARGS.get("extra_vars") or ()) if text[:1] == "@"
    ]
    path = Path(origin.path) if origin and origin.path else None
    return next((file.absolute() for file in files if path and file.resolve() == path.resolve()), None)
