# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run programs and show their progress."""

from __future__ import annotations

import subprocess

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import ProgramError

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any


def run(argv: list[str], **options: Any) -> None:
    """Run a program that prints its errors. Raise ProgramError if it fails."""
    code = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False, **options).returncode
    if code:
        end = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise ProgramError(f"`{' '.join(argv[:6])} ...` failed ({end})")


def read_output(argv: list[str]) -> str:
    """Return a program's output. Raise ProgramError if it fails."""
    completed = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if completed.returncode:
        raise ProgramError(f"`{' '.join(argv[:6])} ...` failed (exit code {completed.returncode})")
    return completed.stdout
