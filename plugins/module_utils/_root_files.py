# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of root, as they are. Private to this collection. Runs on the node, standard library only, Python >= 3.8."""

from __future__ import annotations

import hashlib
import os
import stat


def as_they_are(paths: list[str]) -> dict[str, dict[str, str]]:
    """The mode, as "0644", and the SHA-256 of each of these files that root owns and that is no link."""
    found = {}
    for path in paths:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                if stat.S_ISREG(status.st_mode) and status.st_uid == 0:
                    digest = hashlib.sha256(file.read()).hexdigest()
                    found[path] = {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "sha256": digest}
        except OSError:
            pass
    return found
