# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules and findings of the script check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import Program

# error: the run fails, or its result is wrong. warning: it works, but not as intended. note: worth knowing.
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Rule:
    """A rule for scripts that run on several nodes.

    Attributes:
        handled_by: Names of frameworks that do what the rule demands; in a script that uses one, the rule is skipped.
        launchers: Names of the launchers with which the rule applies; empty: with all.
        skipped_launchers: Names of the launchers with which it does not.
    """

    id: str
    severity: Severity
    title: str
    check: Callable[[Program], Iterator[RuleMatch]]
    handled_by: frozenset[str] = frozenset()
    launchers: frozenset[str] = frozenset()
    skipped_launchers: frozenset[str] = frozenset()

    def applies_to(self, program: Program) -> bool:
        """Return whether the rule applies to a program, given its frameworks and launcher."""
        if self.handled_by & program.frameworks or program.launcher in self.skipped_launchers:
            return False
        return not self.launchers or program.launcher in self.launchers


@dataclass(frozen=True)
class ScriptFinding:
    """A match of a rule, as shown to the user."""

    severity: Severity
    id: str
    file: str
    line: int
    problem: str
    change: str

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data, with the keys that the module returns."""
        return {
            "severity": self.severity,
            "id": self.id,
            "file": self.file,
            "line": self.line,
            "problem": self.problem,
            "change": self.change,
        }
