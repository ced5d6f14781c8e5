# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a project says it requires. Private to this collection, controller only.

Its requirements.txt, with all project files that it names, otherwise the dependencies in its pyproject.toml. A
line that means the project itself (``-e .``) stands for the latter: the job starts in its tree, which needs no
installation.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

REQUIREMENTS = "requirements.txt"
PYPROJECT = "pyproject.toml"
LARGEST = 1 << 20  # bytes of one file
MOST_FILES = 50
NAMED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(?P<path>[^\s#]+)")
PATH = re.compile(r"\s*(?:(?:-e|--editable)[\s=]*)?(?P<path>(?:\.{1,2}(?=[/\[\s#]|$)|/|file:)[^\s#]*)")


class Project(TypedDict):
    """What is handed to pip: texts by the names of files, of which main names the others."""

    file: str  # its path in the project
    main: str
    texts: dict[str, str]
    digest: str


def read_text(path: Path) -> str:
    """The text of a file. Raises ValueError if it cannot be read."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} is larger than 1 MiB; requirements are text, one per line")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem


def dependencies(source: Path, extras: list[str]) -> list[str]:
    """The dependencies in pyproject.toml, those of these extras too. Raises ValueError if it is none."""
    path = source / PYPROJECT
    if not path.is_file():
        return []
    try:
        project = tomllib.loads(read_text(path)).get("project", {})
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{path} is no TOML: {problem}") from problem
    optional = project.get("optional-dependencies", {})
    found = [*project.get("dependencies", []), *(one for extra in extras for one in optional.get(extra, []))]
    if not all(isinstance(one, str) for one in found):
        raise ValueError(f"{path}: dependencies are texts, as pip takes them")
    return found


def without_paths(source: Path, name: str, text: str) -> str:
    """A requirements file with the project itself replaced by its dependencies.

    Raises ValueError for other paths: pip would look for them on the node, from where it is started.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        found = PATH.match(line)
        if not found:
            lines.append(line)
            continue
        path, _bracket, extras = found["path"].partition("[")
        if path not in (".", "./"):
            raise ValueError(
                f"{source / name} has {found['path']} in line {number}, a path, which pip would look for on the "
                f"nodes. Put it into python_env_editable as ~/{source.name}/..., with the rest in "
                "python_env_requirements_files"
            )
        lines += dependencies(source, [one.strip() for one in extras.rstrip("]").split(",") if one])
    return "\n".join([*lines, ""])


def read_files(source: Path) -> dict[str, str]:
    """The texts of requirements.txt and of all files of the project that it names, by their names in it."""
    texts: dict[str, str] = {}
    left = [REQUIREMENTS]
    while left:
        name = left.pop()
        if name in texts:
            continue
        if name.startswith("../") or os.path.isabs(name) or len(texts) == MOST_FILES:
            raise ValueError(
                f"{source / REQUIREMENTS} leads to {name}. Needed: at most {MOST_FILES} files of the project itself"
            )
        text = read_text(source / name)
        texts[name] = without_paths(source, name, text)
        for line in text.splitlines():
            found = NAMED.match(line)
            if found and "://" not in found["path"]:
                left.append(os.path.normpath(os.path.join(os.path.dirname(name), found["path"])))
    return dict(sorted(texts.items()))


def read_project(directory: str) -> Project | None:
    """What the project in a directory requires, None if it says nothing. Raises ValueError with what is wrong."""
    if not directory:
        return None
    source = Path(os.path.abspath(os.path.expanduser(directory)))
    if (source / REQUIREMENTS).is_file():
        return as_project(REQUIREMENTS, read_files(source))
    found = dependencies(source, [])
    return as_project(PYPROJECT, {REQUIREMENTS: "\n".join([*found, ""])}) if found else None


def as_project(file: str, texts: Mapping[str, str]) -> Project | None:
    """These requirements and their hash, None if there are none. Comments and blank lines are no requirements."""
    plain: dict[str, Any] = {}
    for name, text in texts.items():
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
        plain[name] = [line for line in lines if line]
    if not any(plain.values()):
        return None
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return {"file": file, "main": REQUIREMENTS, "texts": dict(texts), "digest": digest}
