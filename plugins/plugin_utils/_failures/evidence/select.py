# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Select one of several causes of a failure, based on evidence in the log and facts about the run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._failures.command_fields import replace_shell_syntax
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import (
    Confidence,
    Explanation,
    clean_line,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

MAX_TEXT = 60_000  # number of characters at the end of a log that are searched for evidence
MAX_GROUP = 160  # number of characters of a log in a text
MAX_SEEN = 300  # number of characters of the line that are shown


def select_cause(explanation: Explanation, error: str, lines: Iterable[str], facts: RunFacts) -> Explanation:
    """Return an explanation with the cause that the evidence selects, or the unchanged explanation.

    Args:
        explanation: That of the failure.
        error: The error.
        lines: The end of its log.
        facts: Those of the run.
    """
    text = "\n".join([*lines, error])[-MAX_TEXT:]
    for rule in RULES:
        if explanation["id"] not in rule.entries:
            continue
        matches = match_rule(rule, text, facts)
        if matches is None:
            continue
        fields = {**dict.fromkeys(group_names(matches), ""), **facts.fields, **groups_of(matches)}
        confidence: Confidence = "error" if rule.certain else explanation["confidence"]
        seen = matched_line(text, matches[0]) if matches else explanation["evidence"]
        return {
            "id": explanation["id"],
            "cause": rule.cause.format_map(fields),
            "remedy": rule.remedy.format_map(
                {**facts.fields, **replace_shell_syntax({name: fields[name] for name in group_names(matches)})}
            ),
            "evidence": seen if confidence == "log" else "",
            "confidence": confidence,
        }
    return explanation


def match_rule(rule: EvidenceRule, text: str, facts: RunFacts) -> list[re.Match[str]] | None:
    """Return the matches for a rule's expressions, or None if the rule does not apply."""
    matches = []
    for pattern in rule.shows:
        match = compile_pattern(pattern).search(text)
        if match is None:
            return None
        matches.append(match)
    if rule.unless and compile_pattern(rule.unless).search(text):
        return None
    return matches if rule.condition(groups_of(matches), facts) else None


def groups_of(matches: list[re.Match[str]]) -> dict[str, str]:
    """Return the named groups of the matches, made safe for a terminal."""
    return {
        name: " ".join(clean_line(value).split())[:MAX_GROUP]
        for match in matches
        for name, value in match.groupdict().items()
        if value is not None
    }


def group_names(matches: list[re.Match[str]]) -> list[str]:
    """Return the names of all groups, including groups that did not match."""
    return [name for match in matches for name in match.re.groupindex]


def matched_line(text: str, match: re.Match[str]) -> str:
    """Return the line in which a match begins, cleaned and shortened around the match."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    first = max(start, match.start() - MAX_SEEN // 3)
    return " ".join(clean_line(text[first : len(text) if end == -1 else end][:MAX_SEEN]).split())


@functools.cache
def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile an expression when it is first used."""
    return re.compile(text, re.MULTILINE)
