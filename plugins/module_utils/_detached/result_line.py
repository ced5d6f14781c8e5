# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Format the result of our own code and programs as a line of output for the play."""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Data = Dict[str, Any]

RESULT_MARK = "MUSTER-RESULT "  # prefix of a line that is meant for the play, not for a person


class StepError(Exception):
    """A step failed; the message explains why, with a remedy."""


class ProgramError(StepError):
    """A program failed; its output explains why."""


def print_line(text: str) -> None:
    """Print a line and flush it, because a user or a program is waiting for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def report_result(function: Callable[[Data], Data], request: Data) -> Data:
    """Return the function's result. On StepError, report the error to the play and exit with code 1."""
    try:
        return function(request)
    except StepError as error:
        message = {"step_error": str(error), "show_output": isinstance(error, ProgramError)}
        print_line(RESULT_MARK + json.dumps(message))
        raise SystemExit(1) from None


def run_and_report(function: Callable[[Data], Data], request: Data) -> int:
    """Run a program's function and report its result, or its StepError, to the play. Return the exit status."""
    print_line(RESULT_MARK + json.dumps(report_result(function, request)))
    return 0
