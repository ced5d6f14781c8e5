# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explain a failure by means of the error catalogue."""

from __future__ import annotations

from typing import Literal, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import ESCAPE, printable

# error: the error itself shows the cause. log: a possible cause, because only a line near the end of the log shows it,
# or because the error can have other causes, too.
Confidence = Literal["error", "log"]


class Explanation(TypedDict):
    """The error catalogue's entry for a failure.

    evidence: the log line that shows it or, for a possible cause of the error itself, describes it further; "" if none.
    """

    id: str
    cause: str
    remedy: str
    evidence: str
    confidence: Confidence


def clean_line(text: str) -> str:
    """Return a job's text as one line that is safe for a terminal."""
    return printable(ESCAPE.sub("", text))
