"""Cases of failed jobs: what their ranks printed, how they ended, and what a correct explanation contains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

GRADES = ("right", "partly", "silent", "wrong")


class Case(TypedDict):
    """A failed job. exit: exit code or signal by rank, None if the rank was still running. expect, not: expressions.

    An explanation that matches all of `expect` and none of `not` is right.
    """

    case: str
    thread: str
    ranks: dict[str, str]
    exit: dict[str, int | str | None]
    order: NotRequired[list[str]]
    expect: list[str]


class Explanation(NamedTuple):
    """The explanation that muster gives for a case. confidence: error, log, or "" if it knows no cause."""

    id: str
    text: str
    confidence: str


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Return the cases in a file."""
    cases: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return cases


def grade(case: dict[str, Any], explanation: Explanation) -> str:
    """Grade an answer. One that matches only some of the expressions is partly right."""
    if not explanation.id:
        return "silent"
    flags = re.IGNORECASE | re.DOTALL
    if any(re.search(pattern, explanation.text, flags) for pattern in case["not"]):
        return "wrong"
    matches = [bool(re.search(pattern, explanation.text, flags)) for pattern in case["expect"]]
    return "right" if all(matches) else "partly" if any(matches) else "wrong"
