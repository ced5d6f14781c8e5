# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's requirements, in each format in which projects declare them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._project.requirements import (
    ProjectRequirements,
    read_project,
)

PYPROJECT = """
[project]
name = "mine"
dependencies = ["torch", "transformers>=4"]
[project.optional-dependencies]
train = ["datasets"]
"""


def project(directory: Path, **files: str) -> ProjectRequirements | None:
    for name, text in files.items():
        path = directory / {"txt": "requirements.txt", "toml": "pyproject.toml"}.get(name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_project(str(directory))


def required(directory: Path, **files: str) -> str:
    result = project(directory, **files)
    assert result and result["main"] == "requirements.txt"
    return result["texts"]["requirements.txt"]


def test_project_without_requirements_has_no_requirements(tmp_path: Path) -> None:
    assert read_project("") is None and read_project(str(tmp_path / "none")) is None
    assert project(tmp_path) is None
    assert project(tmp_path, toml="[tool.ruff]\nline-length = 100\n") is None
    assert project(tmp_path, txt="# nothing yet\n\n") is None


def test_requirements_txt_takes_precedence_over_pyproject(tmp_path: Path) -> None:
    assert required(tmp_path, toml=PYPROJECT) == "torch\ntransformers>=4\n"
    assert required(tmp_path, txt="six\n") == "six\n"
    result = read_project(str(tmp_path))
    assert result and result["file"] == "requirements.txt"


def test_included_requirement_files_are_read_too(tmp_path: Path) -> None:
    files = {
        "txt": "-r more/a.txt\n--constraint=c.txt  # all\n-r https://example.org/r.txt\n-rmore/a.txt\n",
        "more/a.txt": "six\n--requirement ../b.txt\n",
        "b.txt": "numpy\n-r requirements.txt\n",
        "c.txt": "six<2\n",
    }
    result = project(tmp_path, **files)
    assert result and set(result["texts"]) == {"requirements.txt", "more/a.txt", "b.txt", "c.txt"}
    (tmp_path / "b.txt").write_text("numpy<3\n-r requirements.txt\n")
    again = read_project(str(tmp_path))
    assert again and again["digest"] != result["digest"]


def test_comments_and_spacing_do_not_change_the_digest(tmp_path: Path) -> None:
    first = project(tmp_path, txt="six\nname @ https://example.org/a#b\n")
    second = project(tmp_path, txt="# why\n  six   # needed\n\nname @ https://example.org/a#b\n")
    third = project(tmp_path, txt="six\nname @ https://example.org/a#c\n")
    assert first and second and third
    assert first["digest"] == second["digest"] != third["digest"]


@pytest.mark.parametrize("line", ["-e .", ".", "./", "--editable=.", "-e . # mine"])
def test_reference_to_the_project_itself_becomes_its_dependencies(line: str, tmp_path: Path) -> None:
    assert required(tmp_path, toml=PYPROJECT, txt=f"six\n{line}\n") == "six\ntorch\ntransformers>=4\n"


def test_extras_of_the_project_add_their_dependencies(tmp_path: Path) -> None:
    assert required(tmp_path, toml=PYPROJECT, txt="-e .[train]\n") == "torch\ntransformers>=4\ndatasets\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"txt": "six\n-e ./libs/own\n"}, "has the path ./libs/own on line 2, .* python_env_editable"),
        ({"txt": "/srv/wheels/a.whl\n"}, "has the path /srv/wheels/a.whl on line 1"),
        ({"txt": "file:///srv/a.whl\n"}, "on line 1, which pip would"),
        ({"txt": "-r ../other.txt\n"}, "refers to ../other.txt, but it may refer only to files in the project"),
        ({"txt": "-r /etc/passwd\n"}, "refers to /etc/passwd"),
        ({"txt": "-r none.txt\n"}, "none.txt cannot be read: No such file"),
        ({"toml": "[project\n"}, "pyproject.toml is not valid TOML: "),
        ({"toml": "[project]\ndependencies = [1]\n"}, "dependencies must be strings"),
    ],
)
def test_requirements_that_cannot_be_installed_are_refused(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        project(tmp_path, **files)


@pytest.mark.parametrize(
    "line", ["-e git+https://example.org/a.git", "name @ file:///x", "a.b==1", "--pre", "-i https://x"]
)
def test_all_other_lines_are_left_to_pip(line: str, tmp_path: Path) -> None:
    assert required(tmp_path, txt=line + "\n") == line + "\n"
