# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's diagnostic, replaced by tests/support/dcgmi, which prints the real program's output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._health import dcgm

STAND_IN = Path(__file__).resolve().parents[5] / "tests" / "support" / "dcgmi"


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PATH", f"{STAND_IN}:/usr/bin:/bin")

    def run(case: str) -> dict[str, Any]:
        monkeypatch.setenv("DCGMI_CASE", case)
        return dcgm.main({})

    return run


@pytest.mark.parametrize(("case", "number"), [("pass", 9), ("pass4", 1)])
def test_a_healthy_node_passes_each_test(diagnose: Any, case: str, number: int) -> None:
    reply = diagnose(case)
    assert reply["installed"] and not reply["failure"]
    assert len(reply["tests"]) == number
    assert {test["result"] for test in reply["tests"]} <= {"Pass", "Skip"}
    assert not any(test["details"] for test in reply["tests"])


def test_failures_contain_the_text_of_all_their_rows(diagnose: Any) -> None:
    failed = [test for test in diagnose("fail")["tests"] if test["result"] == "Fail"]
    text = "Error: GPU 3 had memory errors and row remappings are pending"
    assert failed == [{"name": "Page Retirement/Row Remap", "result": "Fail", "details": text}]
    text = "GPU1: Fail GPU 1 had uncorrectable memory errors and row remapping failed."
    assert diagnose("fail4")["tests"] == [{"name": "software", "result": "Fail", "details": text}]


def test_missing_results_are_reported_with_the_reason(diagnose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = diagnose("no_engine")
    assert (reply["tests"], reply["failure"]) == (
        [],
        "the DCGM service is not running: start it with sudo systemctl enable --now nvidia-dcgm",
    )
    monkeypatch.setattr(dcgm, "TIMEOUT", 0.1)
    assert "did not finish within" in diagnose("hang")["failure"]
    monkeypatch.setattr(dcgm, "DIRECTORIES", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    assert diagnose("pass") == {"changed": False, "installed": False, "tests": [], "failure": "dcgmi is not installed"}
