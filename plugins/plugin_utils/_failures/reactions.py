# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rank the lines of a log: a line that states a cause takes precedence over an error that only reacts to it.

A rank that cannot resolve a name prints a warning, tries again, and ends with a timeout many lines later. The timeout
is the error, and the warning is the cause. Programs also print such warnings and continue, so a warning counts only if
nothing healthy follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.module_utils._run.error_text import LINE_PREFIX, PROGRESS
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

# An error that only reports that another program failed, whose own message is above it.
REPORT = re.compile(r"(?:subprocess\.)?CalledProcessError: Command ")
MAX_LINE = 500  # number of characters of a line that are searched for a sign of health
# A line in the form in which an exception ends, as opposed to one that quotes it.
EXCEPTION = re.compile(
    rf"{LINE_PREFIX}(?:[A-Za-z_][\w.]{{0,100}}(?:Error|Exception|\.(?:errors?|exceptions?)\.\w{{1,60}}): |"
    r"terminate called after throwing an instance of ')"
)
BAR = re.compile(r"\d{1,3}%\|[^|\n]{0,120}\| {0,8}[\d.]{1,12}[kKMG]?/[\d.]{1,12}[kKMG]?")  # a progress bar of tqdm
# Output of a program that kept going: it connected, is trying again, or is training.
WENT_ON = re.compile(
    r"\bretry|\btrying again|\brecovered\b|Rendezvous complete|socket has connected to|Connected all (?:rings|trees)|"
    r"Init COMPLETE|All distributed processes registered|process group (?:is )?(?:ready|initiali[sz]ed)|"
    r"[Dd]istributed (?:init|setup|training) (?:done|complete)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Precedence:
    """Entries whose message takes precedence over reactions to it, although programs may also survive it.

    Attributes:
        roots: Ids of recoverable entries.
        reactions: Ids of the entries that may follow from them.
        disproved: Matches a log that shows that the message was harmless, or "".
        ends: Whether the message may also explain an end without an error of its own.
    """

    roots: tuple[str, ...]
    reactions: tuple[str, ...]
    disproved: str = ""
    ends: bool = False


RENDEZVOUS = (
    "rendezvous-unreached",
    "rendezvous-closed",
    "rendezvous-ids-differ",
    "ranks-missing",
    "store-time-out",
    "store-reset",
    "store-gone",
)
START = (*RENDEZVOUS, "nccl-start-waits", "gloo-full-mesh", "gloo-peer-gone", "nccl-peer-gone")
ENDED = ("rank-failed", "launcher-terminated", "session-closed", "slurm-cancelled")
PRECEDENCES: tuple[Precedence, ...] = (
    Precedence(
        roots=("name-unknown",),
        reactions=(*START, *ENDED, "mpi-network", "mpi-daemon-missing", "ssh-refused"),
        # If a connection to the name's address was attempted, the name has been resolved, as IPv4 if not as IPv6.
        disproved=r"client socket has failed to connect to \[?[^\n]{1,255}\(errno: (?!97\b)\d",
        ends=True,
    ),
    Precedence(roots=("address-in-use",), reactions=(*START, *ENDED)),
    Precedence(
        roots=("rdma-link-lost",), reactions=("nccl-time-out", "nccl-watchdog-stuck", "nccl-peer-gone"), ends=True
    ),
    Precedence(roots=("efa-device-missing", "nccl-nvls"), reactions=("nccl-peer-gone",)),
    Precedence(roots=("slurm-controller-away",), reactions=ENDED),
)
BY_ROOT = {root: precedence for precedence in PRECEDENCES for root in precedence.roots}


def is_disproved(entry: CatalogueEntry, lines: list[str]) -> bool:
    """Return whether other lines in the log show that an entry's message was harmless."""
    precedence = BY_ROOT.get(entry.id)
    if precedence is None or not precedence.disproved:
        return False
    pattern = re.compile(precedence.disproved)
    return any(pattern.search(line[:MAX_LINE]) for line in lines)


def is_raised(entry: CatalogueEntry, lines: Iterable[str], exceptions: Iterable[str]) -> bool:
    """Return whether a program raised an exception with an entry's message, rather than only printing the message.

    Args:
        entry: The entry whose texts are searched for.
        lines: The end of the log.
        exceptions: The messages of its tracebacks.
    """
    patterns = [re.compile(text, re.MULTILINE) for text in entry.texts]
    raised = [*exceptions, *filter(EXCEPTION.match, lines)]
    return any(pattern.search(text) for pattern in patterns for text in raised)


def explains_reaction(root: CatalogueEntry, raised: bool, reaction: CatalogueEntry, lines: list[str]) -> bool:
    """Return whether an entry's message is the cause of an error that only reacts to an earlier failure.

    Args:
        root: The recoverable entry.
        raised: Whether a program raised its message.
        reaction: The entry of the error that ended the rank.
        lines: The end of the log.
    """
    precedence = BY_ROOT.get(root.id)
    listed = precedence is not None and reaction.id in precedence.reactions
    if root.kind != "root" or not (listed or (reaction.kind == "consequence" and raised)):
        return False
    return not has_continued(root, lines)


def explains_end(root: CatalogueEntry, lines: list[str]) -> bool:
    """Return whether the message of a recoverable entry is why the program ended without an error of its own."""
    precedence = BY_ROOT.get(root.id)
    return precedence is not None and precedence.ends and not has_continued(root, lines)


def has_continued(root: CatalogueEntry, lines: list[str]) -> bool:
    """Return whether a program continued after an entry's last message, or the log shows that the message was
    harmless.
    """
    return is_disproved(root, lines) or shows_health(lines_after(root, lines))


def shows_health(lines: Iterable[str], before: Iterable[str] = ()) -> bool:
    """Return whether lines show that a program continued: it connected, is retrying, or is training.

    Args:
        lines: The lines after a message.
        before: Those before it: a progress bar that a program draws again when it ends shows no progress.
    """
    bars = {match[0] for line in before for match in BAR.finditer(line[-MAX_LINE:])}
    shortened = [line[:MAX_LINE] for line in lines]
    return any(
        WENT_ON.search(line)
        or (PROGRESS.search(line) and not bars.intersection(match[0] for match in BAR.finditer(line)))
        for line in shortened
    )


def lines_after(entry: CatalogueEntry, lines: list[str]) -> list[str]:
    """Return the lines after the last one that an entry's expressions match."""
    patterns = [re.compile(text) for text in entry.texts]
    for index in range(len(lines) - 1, -1, -1):
        if any(pattern.search(lines[index]) for pattern in patterns):
            return lines[index + 1 :]
    return lines
