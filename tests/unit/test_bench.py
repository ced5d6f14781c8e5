"""The page of benchmarks: a new measurement replaces its own section and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tests.bench.__main__ as bench

pytestmark = pytest.mark.one_core


def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, said: str = "1 s", code: int = 0) -> str:
    """The page after a run of the benchmarks with these words, of which each says the same."""

    def run(command: list[str], **_given: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, code, f"{said} {' '.join(command[3:])}\n")

    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bench, "PAGE", tmp_path / "docs" / "benchmarks.md")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    assert bench.main() == code
    return bench.PAGE.read_text()


def test_rerun_replaces_its_section_and_keeps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench.sections_of(page(tmp_path, monkeypatch, said="first"))
    assert list(first) == [item.title for item in bench.BENCHES.values()]
    assert "first --rounds 2\n" in first[bench.BENCHES["launchers"].title]
    second = bench.sections_of(page(tmp_path, monkeypatch, "launch", "--rounds", "9", said="second", code=1))
    launch = second.pop(bench.BENCHES["launch"].title)
    assert "second --rounds 9\n" in launch and launch.endswith("Not all limits are kept.")
    assert second == {title: text for title, text in first.items() if title in second}


def test_benchmarks_page_has_only_known_sections() -> None:
    titles = [item.title for item in bench.BENCHES.values()]
    assert [title for title in bench.sections_of(bench.PAGE.read_text()) if title not in titles] == []
