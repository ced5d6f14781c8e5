# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rule that uses evidence in a log, or a fact about the run, to select one of the causes that an entry lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

Condition = Callable[[Mapping[str, str], RunFacts], bool]


def always(_groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return True, because only the texts matter."""
    return True


@dataclass(frozen=True)
class EvidenceRule:
    """Evidence that selects one cause of a failure for which an entry gives only a general explanation.

    Attributes:
        id: Id of the rule, for docs/what_went_wrong.md.
        entries: Ids of the entries of the catalogue, or rules for exceptions, whose cause and remedy it replaces.
        shows: Regular expressions that must all match the error or the end of the log; no repetition is unbounded.
        cause, remedy: Texts with the named groups of `shows` and the fields of `RunFacts.fields` in braces.
        unless: An expression that must not match.
        condition: Condition on the groups and the facts of the run.
        certain: Whether the evidence makes it the cause rather than a possible one.
    """

    id: str
    entries: tuple[str, ...]
    shows: tuple[str, ...]
    cause: str
    remedy: str
    unless: str = ""
    condition: Condition = always
    certain: bool = False
