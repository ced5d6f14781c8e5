# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render findings for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import SEVERITIES, ScriptFinding
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

WIDTH = 110


def render_findings(findings: Sequence[ScriptFinding]) -> str:
    """Render findings in three lines each: the location and kind, what is wrong, and the code to write."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.file}:{finding.line}: {finding.severity.upper()} {finding.id}")
        for label, text in (("", finding.problem), ("write: ", finding.change)):
            lines.append(
                textwrap.fill(
                    printable(text),
                    WIDTH,
                    initial_indent=f"    {label}",
                    subsequent_indent="           ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    return "\n".join(lines)


def summarize(findings: Sequence[ScriptFinding]) -> str:
    """Return the number of findings of each severity, such as "2 errors, 1 warning", or "no problem"."""
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}" for name in SEVERITIES if counts[name]]
    return ", ".join(parts) or "no problem"
