# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The idle watch's files, which are installed on machines at first boot, before the role idle_watch runs."""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import normalize_limit
from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import program_sources

# Where the role idle_watch installs its program and its units.
WATCH_PROGRAM_DIRECTORY = "/usr/local/lib/muster"
UNIT_DIRECTORY = "/etc/systemd/system"
WATCH_UNITS = ("muster_idle_watch.service", "muster_idle_watch.timer")
WATCH_SETTINGS = "/etc/muster/idle_watch.json"
UNITS = Path(__file__).resolve().parents[3] / "roles" / "idle_watch" / "files"


def read_watch_files(after: str, ttl: str) -> dict[str, str]:
    """Return the files of the role idle_watch, by path on the node, to make the watch work before the role runs."""
    programs = program_sources("_idle_watch.idle_watch")
    return {
        **{f"{WATCH_PROGRAM_DIRECTORY}/{path}": text for path, text in programs.items()},
        **{f"{UNIT_DIRECTORY}/{name}": (UNITS / name).read_text(encoding="utf-8") for name in WATCH_UNITS},
        WATCH_SETTINGS: format_watch_settings(normalize_limit("idle_after", after), normalize_limit("ttl", ttl)),
    }


def format_watch_settings(after: str, ttl: str) -> str:
    """Format the idle watch's settings, byte for byte as the role writes them when no user is set."""
    return json.dumps({"after": after, "ttl": ttl}, indent=4, sort_keys=True) + "\n"
