# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An entry of the error catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# root: it may have ended the job. consequence: it follows from an earlier failure, usually on another rank.
# confirmation: it does not come from the job, but confirms what ended it.
Kind = Literal["root", "consequence", "confirmation"]


@dataclass(frozen=True)
class CatalogueEntry:
    """A known failure, recognized by its error message.

    Attributes:
        texts: Regular expressions, each matched within one line. No repetition is unbounded, since a job may write
            anything; each begins with literal characters if possible, which makes the search fast.
        example: The message as a user sees it.
        source: The public thread ("OWNER/REPOSITORY#NUMBER") or page that has the message and its cause. Empty only if
            unknown.
        weak: Whether the message has other causes, too, so that this is only a possible cause.
        general: Whether more specific entries may match the same line: they take precedence, whatever their module.
        recoverable: Whether programs also print the message and continue, such as a request that is retried: it counts
            only in the error that ended the rank, not elsewhere in its log.
        refines: Ids of entries that this entry replaces if its message is in the log of their error.
        summary: Whether it only reports that a process failed: any other match, in its line or the log, is preferred.
        lasting: Whether the state that a recoverable message reports lasts, so that it may explain a later end without
            a message of its own.
        min_lines: Minimum number of matching lines; fewer are harmless.
    """

    id: str
    title: str
    example: str
    texts: tuple[str, ...]
    cause: str
    remedy: str
    source: str
    kind: Kind = "root"
    weak: bool = False
    general: bool = False
    recoverable: bool = False
    refines: tuple[str, ...] = ()
    summary: bool = False
    lasting: bool = False
    min_lines: int = 1
