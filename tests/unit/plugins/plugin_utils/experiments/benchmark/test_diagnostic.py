# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of a benchmark from NVIDIA's diagnostic: one for each failed test, none for nodes without dcgmi."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.diagnostic import (
    diagnostic_findings,
)

PASSED = {"name": "NVML Library", "result": "Pass", "details": ""}
FAILED = {"name": "Page Retirement/Row Remap", "result": "Fail", "details": "Error: GPU 3 had memory errors"}


def reply(*tests: dict[str, str], failure: str = "", installed: bool = True) -> dict[str, Any]:
    """Return the reply of a node."""
    return {"installed": installed, "tests": list(tests), "failure": failure}


def test_failed_test_is_a_problem_on_every_node_where_it_failed() -> None:
    (finding,) = diagnostic_findings({"a": reply(PASSED, FAILED), "b": reply(FAILED), "c": reply(PASSED)})
    assert (finding["severity"], finding["about"]) == ("problem", ["a", "b"])
    assert finding["problem"] == "NVIDIA's diagnostic: Page Retirement/Row Remap: Error: GPU 3 had memory errors"


def test_stopped_service_is_a_hint_and_missing_program_is_ignored() -> None:
    (finding,) = diagnostic_findings({"a": reply(failure="start it"), "b": reply(failure="none", installed=False)})
    assert (finding["severity"], finding["about"], finding["remedy"]) == ("hint", ["a"], "start it")


def test_invalid_replies_and_hostile_texts_are_harmless() -> None:
    hostile = {"name": "\x1b[2J\n" * 100, "result": "Warn", "details": "x" * 10**5}
    (finding,) = diagnostic_findings({"a": {}, "b": None, "c": {"tests": 3}, "d": reply(hostile)})
    assert finding["severity"] == "hint" and len(finding["problem"]) < 500 and finding["problem"].isprintable()
