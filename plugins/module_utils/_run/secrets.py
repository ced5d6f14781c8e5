# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a living run needs, such as its token: written so that it ends with the run or this boot.

Private to this collection.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

from ansible_collections.muster.training.plugins.module_utils._run.directory import write_private

SECRETS = ("token", "environment.json")  # files that are not needed after the end of a run, as the supervisor has them
IN_MEMORY = "/run/muster"  # root's; the same: where a machine has lost its power, nothing of it is left


def place_in_memory() -> str:
    """Where this user can keep what is to end with this boot, such as the secrets of a run."""
    return os.path.join(IN_MEMORY, str(os.geteuid()))


def write_secrets(directory: str, secrets: dict[str, str]) -> None:
    """Write what only a living run needs: into memory, with links in its directory, where there is a place for it."""
    place = directory
    with contextlib.suppress(OSError):  # there is none
        place = tempfile.mkdtemp(prefix="run-", dir=place_in_memory())
    for name, text in secrets.items():
        if place != directory:
            os.symlink(os.path.join(place, name), os.path.join(directory, name))
        write_private(os.path.join(place, name), text)


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
