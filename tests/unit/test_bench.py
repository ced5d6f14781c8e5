"""The page of benchmarks: a new measurement replaces only its own section."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tests.bench.__main__ as bench

CHECKOUT = bench.CHECKOUT
pytestmark = pytest.mark.one_core


def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, figures: str = "1 s", code: int = 0) -> str:
    """Return the page after running the benchmarks with these arguments; each benchmark prints the same figures."""

    def run(command: list[str], env: dict[str, str], **_options: object) -> subprocess.CompletedProcess[str]:
        assert "PYTHONDONTWRITEBYTECODE" not in env, "Python would compile the plugins again in each command"
        return subprocess.CompletedProcess(command, code, f"{figures} {' '.join(command[3:])}\n")

    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bench, "PAGE", tmp_path / "docs" / "benchmarks.md")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert bench.main() == code
    return bench.PAGE.read_text()


def test_rerun_replaces_its_section_and_keeps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench.sections_of(page(tmp_path, monkeypatch, figures="first"))
    assert list(first) == [item.title for item in bench.BENCHES.values()]
    assert "first --rounds 2\n" in first[bench.BENCHES["launchers"].title]
    second = bench.sections_of(page(tmp_path, monkeypatch, "launch", "--rounds", "9", figures="second", code=1))
    launch = second.pop(bench.BENCHES["launch"].title)
    assert "second --rounds 9\n" in launch and "\n\nNot all limits are kept.\n" in launch
    assert second == {title: text for title, text in first.items() if title in second}


def test_benchmarks_page_has_only_known_sections() -> None:
    titles = [item.title for item in bench.BENCHES.values()]
    assert [title for title in bench.sections_of(bench.PAGE.read_text()) if title not in titles] == []


@pytest.mark.parametrize("name", bench.BENCHES)
def test_each_section_names_the_code_that_it_measures(name: str) -> None:
    missing = [path for path in bench.BENCHES[name].measures if not (CHECKOUT / path).exists()]
    assert bench.BENCHES[name].measures and not missing


def test_figures_are_as_recent_as_the_code_that_they_measure() -> None:
    outdated = bench.outdated_sections(bench.PAGE.read_text(), last_change)
    assert not outdated, f"measure them again: make bench BENCH_ARGS='{' '.join(outdated)}'"


def test_section_is_outdated_when_its_code_changes_days_later() -> None:
    title = bench.BENCHES["report"].title
    page = f"# Benchmarks\n\n## {title}\n\nMeasured on 2026-03-01: 2 cores.\n"
    on_day = {"plugins/plugin_utils/_report": "2026-03-08"}
    assert bench.outdated_sections(page, lambda paths: on_day[paths[0]]) == []
    on_day["plugins/plugin_utils/_report"] = "2026-03-09"
    assert bench.outdated_sections(page, lambda paths: on_day[paths[0]]) == ["report"]
    assert bench.outdated_sections(page.replace("2026-03-01", "2026-03-02"), lambda paths: on_day[paths[0]]) == []


def last_change(paths: Sequence[str]) -> str:
    """Return the day of the last commit that changed these paths, as YYYY-MM-DD."""
    command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%cs", "--", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
