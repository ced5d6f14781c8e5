# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's first-boot script, which authorizes an SSH key and sets up the idle watch.

Paperspace stores its text, so it contains no secret and no API key.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import script_name

HOME = "/home/paperspace"  # all Paperspace templates have this user
_END = "END_OF_MUSTER_FILE"


def build_first_boot_script(key: str, watch: Mapping[str, str]) -> str:
    """Return the script, which is idempotent, or "" if it would do nothing.

    key: public key from parse_public_key(), or "". watch: texts of the idle watch's files by path.
    """
    if not key and not watch:
        return ""
    lines = ["#!/bin/sh", "set -e"]
    if key:
        lines += [
            "umask 077",
            f"mkdir -p {HOME}/.ssh",
            f"touch {HOME}/.ssh/authorized_keys",
            f"grep -qxF '{key}' {HOME}/.ssh/authorized_keys || echo '{key}' >> {HOME}/.ssh/authorized_keys",
            f"chown -R paperspace:paperspace {HOME}/.ssh",
        ]
    if watch:
        lines.append("umask 022")
    for path, text in watch.items():
        directory = shlex.quote(str(PurePosixPath(path).parent))
        lines += [f"mkdir -p {directory}", f"cat > {shlex.quote(path)} <<'{_END}'", text.rstrip("\n"), _END]
    if watch:
        lines += ["systemctl daemon-reload", f"systemctl enable --now {PurePosixPath(_timer_path(watch)).name}"]
    return "\n".join(lines) + "\n"


def _timer_path(watch: Mapping[str, str]) -> str:
    return next(path for path in watch if path.endswith(".timer"))


def first_boot_script_name(cluster: str, script: str) -> str:
    """Return the name of the script object, which depends on the script's text."""
    return script_name(cluster, hashlib.sha256(script.encode()).hexdigest()[:8])
