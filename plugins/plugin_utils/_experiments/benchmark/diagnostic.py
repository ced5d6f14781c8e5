# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of NVIDIA's diagnostic for the nodes in a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ReportFinding
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

REPLY = {"installed": bool, "tests": [{"name": str, "result": str, "details": str}], "failure": str}
MAX_TESTS = 100
SEVERITIES = {"Fail": "problem", "Warn": "hint"}
REMEDY = (
    "run dcgmi diag -r 3 on the node (this takes half an hour); reboot the node, and have it repaired if the "
    "test fails again"
)


def make_finding(severity: str, nodes: list[str], text: str, remedy: str) -> ReportFinding:
    """Return a finding from the diagnostic."""
    return {
        "id": "benchmark-diagnostic",
        "severity": severity,
        "about": nodes,
        "problem": text,
        "remedy": remedy,
        "numbers": {},
    }


def diagnostic_findings(replies: Mapping[str, Any]) -> list[ReportFinding]:
    """Return a finding for each failed test, with all nodes on which it failed, ignoring nodes without dcgmi.

    replies: those of the module dcgm_diagnostic, by node.
    """
    nodes_by_failure: dict[tuple[str, str, str], list[str]] = {}
    unavailable: dict[str, list[str]] = {}
    for name, reply in replies.items():
        if not conforms(reply, REPLY):
            continue
        if reply["installed"] and reply["failure"]:
            unavailable.setdefault(single_line(reply["failure"]), []).append(name)
        for test in reply["tests"][:MAX_TESTS]:
            if test["result"] in SEVERITIES:
                key = (SEVERITIES[test["result"]], single_line(test["name"], 100), single_line(test["details"]))
                nodes_by_failure.setdefault(key, []).append(name)
    findings = [
        make_finding(severity, nodes, f"NVIDIA's diagnostic: {test}: {details or 'failed'}", REMEDY)
        for (severity, test, details), nodes in nodes_by_failure.items()
    ]
    findings += [
        make_finding("hint", nodes, "NVIDIA's diagnostic could not be run", reason)
        for reason, nodes in unavailable.items()
    ]
    return findings
