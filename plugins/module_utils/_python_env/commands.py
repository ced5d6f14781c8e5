# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run programs, and show their progress.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import subprocess

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import ProgramFault

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any


def run(words: list[str], **options: Any) -> None:
    """Run a program that prints its errors. Raises ProgramFault if it fails."""
    code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False, **options).returncode
    if code:
        end = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise ProgramFault(f"`{' '.join(words[:6])} ...` failed ({end})")


def asked_of(words: list[str]) -> str:
    """Return a program's output. Raises ProgramFault if it fails."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ProgramFault(f"`{' '.join(words[:6])} ...` failed (exit code {done.returncode})")
    return done.stdout
