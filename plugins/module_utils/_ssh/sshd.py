# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The effective settings of a node's sshd. Needs root."""

from __future__ import annotations

import subprocess


def read_settings() -> tuple[list[tuple[str, str]], str]:
    """Return the settings in order, with lower-case names, some repeated; and sshd's message if it fails."""
    try:
        completed = subprocess.run(["/usr/sbin/sshd", "-T"], capture_output=True, text=True, check=False)
    except OSError as error:
        return [], str(error)
    pairs = (line.partition(" ") for line in completed.stdout.splitlines())
    return [(name.lower(), value) for name, _space, value in pairs], completed.stderr.strip()
