"""Files of a project: existing ones are kept, missing ones are written completely, in one task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.typed import give_collection, typed


def write_files(directory: Path, files: list[dict[str, Any]], *options: str) -> str:
    """Run a task that writes project files; return the output."""
    give_collection(directory)
    task = {"muster.training.project_files": {"directory": str(directory / "project"), "files": files}}
    (directory / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    return typed(directory, ["ansible-playbook", "play.yml", *options]).stdout


FILES: list[dict[str, Any]] = [
    {"path": "settings/one.yml", "content": "{{ never }} é\n"},
    {"path": "program", "content": "#!/bin/sh\n", "executable": True},
]


@pytest.mark.parametrize("options", [(), ("--check", "--diff")])
def test_existing_file_is_kept_and_missing_one_is_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "program").write_text("mine")
    files = [{**FILES[0], "content": "{% raw %}{{ never }}{% endraw %} é\n"}, FILES[1]]
    output = write_files(tmp_path, files, *options)
    assert "changed=1" in output, output
    assert (project / "program").read_text() == "mine"
    if options:
        assert "+{{ never }} é" in output
        assert not (project / "settings").exists()
    else:
        assert (project / "settings/one.yml").read_text() == "{{ never }} é\n"
        assert (project / "settings/one.yml").stat().st_mode & 0o777 == 0o644


def test_program_is_executable(tmp_path: Path) -> None:
    write_files(tmp_path, FILES[1:])
    assert (tmp_path / "project/program").stat().st_mode & 0o777 == 0o755


def test_unwritable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("a file")
    output = write_files(tmp_path, FILES[1:])
    assert "project/program cannot be written: " in output and "Choose another directory" in output, output
