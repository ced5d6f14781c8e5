# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explain an error that is only a reaction to an earlier failure, using an exception before it in the log."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.muster.training.plugins.module_utils._run.lost_peers import SECONDARY
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation, clean_line
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.explain import explain_chain
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.tracebacks import (
    RaisedError,
    read_tracebacks,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.reactions import REPORT, shows_health

MAX_SEEN = 300  # number of characters of the exception that are shown
# Exceptions that programs raise in order to try another way: for an optional package, or for a key missing from a
# configuration.
TRIED = ("ImportError", "ModuleNotFoundError", "AttributeError")
ENDED = ("KeyboardInterrupt", "SystemExit")


def explain_earlier_error(
    lines: list[str], is_reaction: Callable[[str], bool], reported: bool = False
) -> Explanation | None:
    """Explain the last exception in a log that is not a reaction; return None if the program continued after it.

    Args:
        lines: The end of the log of a rank whose error only reacts to an earlier failure.
        is_reaction: Whether the catalogue knows the message of an exception as a reaction.
        reported: Whether the error is the report of a launcher, so that the program did end by its last exception.
    """
    for raised in reversed(read_tracebacks(lines)):
        # Lines that follow the message may belong to another process.
        text = first_line(raised) if ": " in first_line(raised) else raised.text
        if SECONDARY.search(text) or REPORT.match(text) or is_reaction(text):
            continue
        if (
            raised.exception in (ENDED if reported else (*TRIED, *ENDED))
            or raised.user_frame is None
            or has_continued(raised, lines)
        ):
            return None
        explanation = explain_chain([raised], None, fallback=True)
        if explanation is None:
            return None
        return {**explanation, "confidence": "log", "evidence": " ".join(clean_line(first_line(raised)).split())}
    return None


def first_line(raised: RaisedError) -> str:
    """Return the first line of an exception's message, shortened."""
    return raised.text.partition("\n")[0][:MAX_SEEN]


def has_continued(raised: RaisedError, lines: list[str]) -> bool:
    """Return whether the program went on after the last line that has the message of an exception."""
    text = first_line(raised)
    position = next((index for index in range(len(lines) - 1, -1, -1) if text in lines[index]), len(lines) - 1)
    return shows_health(lines[position + 1 :], lines[:position])
