"""make explain: cases are replayed through the functions that explain a run, and the explanations are graded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.explain import __main__ as program
from tests.explain.cases import Explanation, grade
from tests.explain.launched import answer_of
from tests.explain.offline import explain_offline

OOM = (
    'Traceback (most recent call last):\n  File "t.py"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n'
)
CASE: dict[str, Any] = {
    "case": "1",
    "class": "memory",
    "ranks": {"1": OOM},
    "exit": {"0": None, "1": 1},
    "expect": ["GPU", "batch"],
    "not": ["disk"],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("GPU full, smaller batch", "right"), ("gpu", "partly"), ("a cable", "wrong"), ("GPU batch disk", "wrong")],
)
def test_explanation_is_graded_by_the_expressions_for_its_case(text: str, expected: str) -> None:
    assert grade(CASE, Explanation("some-entry", text, "error")) == expected


def test_case_without_an_explanation_counts_as_silent() -> None:
    assert grade(CASE, Explanation("", "GPU batch", "")) == "silent"


def test_case_is_explained_like_a_run() -> None:
    explanation = explain_offline(CASE)
    assert (explanation.id, explanation.confidence) == ("cuda-out-of-memory", "error")
    killed = {**CASE, "ranks": {}, "exit": {"0": "SIGKILL"}}
    assert explain_offline(killed).id == "kernel-out-of-memory"


def test_explanation_is_read_from_the_output_of_a_launch() -> None:
    output = (
        "  failed first: node a, rank 0: x\n  possibly:     Two on\n    one.\n  because its log says: y\n"
        "  what to do:   one each\n  its log:      z\n"
    )
    assert answer_of(output) == Explanation("shown", "Two on one. one each", "log")
    assert answer_of("  failed first: x\n  cause:        unknown; look\n  its log: z\n").id == ""


@pytest.mark.parametrize(("expect", "code"), [(["GPU"], 0), (["cable"], 1)])
def test_program_prints_the_grades(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, expect: list[str], code: int
) -> None:
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([{**CASE, "expect": expect}]))
    monkeypatch.setattr("sys.argv", ["explain", str(cases)])
    assert program.main() == code
    assert ("100 % right" in capsys.readouterr().out) == (code == 0)
