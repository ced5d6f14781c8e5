"""Failures with several possible causes are distinguished: each text leads to the cause in its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.loops import describe_loops
from tests.explain.offline import node_result

SITE = "/opt/env/lib/python3.11/site-packages"
TEXTS = Path(__file__).parents[3] / "fixtures/failures_told_apart.txt"
Case = tuple[str, int, str, str, dict[str, str], dict[str, int | str | None]]


def read_texts() -> Iterator[Case]:
    """Yield the name, first failed rank, entry, phrase of the cause, outputs and exit codes by rank."""
    for block in TEXTS.read_text(encoding="utf-8").replace("$SITE", SITE).removeprefix("%%%% ").split("\n%%%% "):
        head, _, body = block.partition("\n")
        name, rank, entry, phrase = head.split(" | ", 3)
        outputs: dict[str, str] = {}
        ends: dict[str, int | str | None] = {}
        for part in re.split(r"^@", body, flags=re.MULTILINE)[1:]:
            line, _, text = part.partition("\n")
            number, end = line.split()
            outputs[number] = text
            ends[number] = None if end == "-" else int(end) if end.isdecimal() else end
        yield name, int(rank), entry, phrase, outputs, ends


CASES = list(read_texts())


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_log_decides_between_causes(case: Case, tmp_path: Path) -> None:
    _name, rank, entry, phrase, outputs, ends = case
    nodes: list[dict[str, Any]] = []
    for number in sorted(ends, key=int):
        directory = tmp_path / number
        directory.mkdir()
        nodes.append(node_result({"ranks": outputs, "exit": ends}, number, directory, float(number)))
    first_node = next(f"node{number}" for number, end in ends.items() if end not in (0, None))
    result = {"state": "failed", "reason": "", "first_node": first_node, "ended": 9.0, "nodes": nodes}
    first = first_failure(result)
    assert first is not None and first["rank"] == rank
    explanation = explain_failure(first["error"], first["last_lines"])
    assert explanation is not None
    assert explanation["id"] == entry
    assert phrase in explanation["cause"], explanation["cause"]


@pytest.mark.parametrize(
    ("own_line", "peer_line", "clause"),
    [
        ("100%|##| 80/80 [00:41", "96%|## | 80/83 [00:41", ", loops: 80 steps on rank 1, 83 on rank 0"),
        ("step 80/80 loss 1", "step 80/83 loss 1", ", loops: 80 steps on rank 1, 83 on rank 0"),
        ("100%|##| 80/80 [00:41", "100%|##| 80/80 [00:41", ""),
        ("train: 100%|##| 80/80 [00:41", "valid: 96%|## | 80/83 [00:41", ""),
        ("100%|##| 400/400 [00:41", "50%|# | 16/32 [00:41", ""),
        ("ready", "96%|## | 80/83 [00:41", ""),
    ],
    ids=["bars", "steps", "equal", "other loops", "too different", "no progress"],
)
def test_loops_of_different_lengths_are_named(own_line: str, peer_line: str, clause: str) -> None:
    assert describe_loops((1, ["start", own_line]), (0, [peer_line])) == clause
