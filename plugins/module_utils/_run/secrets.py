# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a running run needs, such as its token: it goes away with the run or at the next boot.

Private to this collection.
"""

from __future__ import annotations

import contextlib
import os

SECRETS = ("token", "environment.json")  # files that are not needed after the end of a run, as the supervisor has them
IN_MEMORY = "/run/muster"  # root's; the same: where a machine has lost its power, nothing of it is left


def place_in_memory() -> str:
    """Where this user can keep what should not survive this boot, such as the secrets of a run."""
    return os.path.join(IN_MEMORY, str(os.geteuid()))


def forget_secrets(directory: str) -> None:
    """Remove the secrets of a run: the files in its directory, or what its links lead to in memory and the links."""
    for name in SECRETS:
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            kept = os.readlink(path)
            if os.path.dirname(os.path.dirname(kept)) == os.path.join(IN_MEMORY, str(os.geteuid())):
                os.unlink(kept)
                os.rmdir(os.path.dirname(kept))
        with contextlib.suppress(OSError):
            os.unlink(path)
