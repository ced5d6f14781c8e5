# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents with which profile.yml, the supervisor and the ranks of a node coordinate a profile."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import RANK, TIME

PROFILE_REQUEST = "profile.request"  # in the run directory: the request made by profile.yml
PROFILE_REPLY = "profile.json"  # the supervisor's reply, which the ranks also read
DIRECTORY = "profiles"
IDENTIFIER = re.compile(r"[0-9a-f]{16}")
REQUEST_SCHEMA = {"id": IDENTIFIER, "steps": range(1, 1001), "ranks": [RANK], "finish": bool}
REPLY_SCHEMA = {
    "id": IDENTIFIER,
    "processes": [{"rank": RANK, "pid": range(1, 2**22 + 1)}],
    "unavailable": [RANK],
    "finish": bool,
}
STATE_SCHEMA = {"state": ("importing", "waiting", "profiled", "failed"), "error": str, "steps": [TIME]}
