# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How our own code answers a play when it runs as a long command. Private to this collection.

Runs on the node, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Data = Dict[str, Any]

RESULT_MARK = "MUSTER-RESULT "  # begins a line that is for the play, not for a person


class Fault(Exception):
    """What was found, what is needed and what to do."""


class ProgramFault(Fault):
    """A program failed. What it printed says why."""


def say(words: str) -> None:
    """A line for the one who waits."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def answered(work: Callable[[Data], Data], request: Data) -> Data:
    """What the work returns. A Fault is told to the play, and ends this process as one that failed."""
    try:
        return work(request)
    except Fault as fault:
        told = {"fault": str(fault), "output_tells": isinstance(fault, ProgramFault)}
        say(RESULT_MARK + json.dumps(told))
        raise SystemExit(1) from None
