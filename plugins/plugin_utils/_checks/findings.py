# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings of the checks, and how they are shown to a person. Private to this collection."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

SEVERITIES = ("error", "warning")


@dataclass(frozen=True)
class Finding:
    """One problem: on which nodes, what was found, what is needed, what to do."""

    severity: str
    id: str
    nodes: tuple[str, ...]
    found: str
    needed: str
    todo: str

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {
            "severity": self.severity,
            "id": self.id,
            "nodes": list(self.nodes),
            "found": self.found,
            "needed": self.needed,
            "todo": self.todo,
        }


def error(id: str, nodes: Iterable[str], found: str, needed: str, todo: str) -> Finding:  # noqa: A002  the field's name
    """A finding with which a run cannot start."""
    return Finding("error", id, tuple(nodes), found, needed, todo)


def warning(id: str, nodes: Iterable[str], found: str, needed: str, todo: str) -> Finding:  # noqa: A002  the field's name
    """A finding with which a run starts, though perhaps not as intended."""
    return Finding("warning", id, tuple(nodes), found, needed, todo)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors before warnings, otherwise in the order found."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def render_table(findings: Iterable[Finding], width: int = 110) -> str:
    """The findings as a table for a terminal, worst first: what was found, what is needed and what to do."""
    rows = worst_first(findings)
    longest = max([len("CHECK"), *(len(finding.id) for finding in rows)])
    lines = [f"{'SEVERITY':<8}  {'CHECK':<{longest}}  NODES"]
    for finding in rows:
        nodes = ", ".join(finding.nodes) or "the cluster"
        lines.append(f"{finding.severity.upper():<8}  {finding.id:<{longest}}  {nodes}")
        for label, text in (("found:", finding.found), ("needed:", finding.needed), ("do:", finding.todo)):
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
    """Merge findings that differ only in their nodes."""
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        nodes = merged.setdefault(replace(finding, nodes=()), [])
        nodes += [name for name in finding.nodes if name not in nodes]
    return [replace(finding, nodes=tuple(nodes)) for finding, nodes in merged.items()]


def render_findings(findings: Iterable[Finding]) -> str:
    """The findings for a terminal, three lines each, worst first."""
    blocks = []
    for finding in worst_first(findings):
        nodes = ", ".join(finding.nodes) or "the cluster"
        blocks.append(
            f"{finding.severity.upper()} {finding.id} on {nodes}: {printable(finding.found)}\n"
            f"    needed: {finding.needed}\n"
            f"    do:     {finding.todo}"
        )
    return "\n".join(blocks)
