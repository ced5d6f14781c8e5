# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Represent findings of the checks, and render them for the terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """A problem on some nodes, or on the cluster if no nodes are named, with the requirement and the remedy."""

    severity: str
    id: str
    nodes: tuple[str, ...]
    problem: str
    requirement: str
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data, using the same keys as the modules' return values."""
        return {
            "severity": self.severity,
            "id": self.id,
            "nodes": list(self.nodes),
            "problem": self.problem,
            "requirement": self.requirement,
            "remedy": self.remedy,
        }


def error(check_id: str, nodes: Iterable[str], problem: str, requirement: str, remedy: str) -> Finding:
    """Return a finding that prevents a run from starting."""
    return Finding("error", check_id, tuple(nodes), problem, requirement, remedy)


def warning(check_id: str, nodes: Iterable[str], problem: str, requirement: str, remedy: str) -> Finding:
    """Return a finding that does not prevent a run from starting, although the run may not work as intended."""
    return Finding("warning", check_id, tuple(nodes), problem, requirement, remedy)


def note(check_id: str, nodes: Iterable[str], problem: str, requirement: str, remedy: str) -> Finding:
    """Return a finding that is only informative and is shown on a single line."""
    return Finding("note", check_id, tuple(nodes), problem, requirement, remedy)


def count_severities(findings: Iterable[Finding]) -> Counter[str]:
    """Return the number of findings of each severity."""
    return Counter(finding.severity for finding in findings)


def sort_by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Sort errors before warnings and notes last; otherwise preserve the order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def render_table(findings: Iterable[Finding], width: int = 110) -> str:
    """Render findings as a table for the terminal, errors first."""
    rows = sort_by_severity(findings)
    id_width = max([len("CHECK"), *(len(finding.id) for finding in rows)])
    lines = [f"{'SEVERITY':<8}  {'CHECK':<{id_width}}  NODES"]
    for finding in rows:
        nodes = ", ".join(finding.nodes) or "the cluster"
        lines.append(f"{finding.severity.upper():<8}  {finding.id:<{id_width}}  {nodes}")
        for label, text in (("found:", finding.problem), ("needed:", finding.requirement), ("do:", finding.remedy)):
            lines.append(
                textwrap.fill(
                    printable(text),
                    width,
                    initial_indent=f"{'':10}{label:<8}",
                    subsequent_indent=" " * 18,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    return "\n".join(lines)


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings that differ only in the nodes they affect."""
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        nodes = merged.setdefault(replace(finding, nodes=()), [])
        nodes += [name for name in finding.nodes if name not in nodes]
    return [replace(finding, nodes=tuple(nodes)) for finding, nodes in merged.items()]


def render_findings(findings: Iterable[Finding]) -> str:
    """Render findings for the terminal, using three lines for each and one line for notes; errors come first."""
    blocks = []
    for finding in sort_by_severity(findings):
        nodes = ", ".join(finding.nodes) or "the cluster"
        if finding.severity == "note":
            blocks.append(f"note: {nodes}: {printable(finding.problem)}; {finding.remedy}")
            continue
        blocks.append(
            f"{finding.severity.upper()} {finding.id} on {nodes}: {printable(finding.problem)}\n"
            f"    needed: {finding.requirement}\n"
            f"    do:     {finding.remedy}"
        )
    return "\n".join(blocks)
