# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a project's requirements.

Its requirements.txt, with all project files that it names, otherwise the dependencies in its pyproject.toml. A line
that means the project itself (``-e .``) stands for the latter: the job starts in its tree, which needs no installation.
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
MAX_FILE_BYTES = 1 << 20  # bytes of one file
MAX_FILES = 50
FILE_REFERENCE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(?P<path>[^\s#]+)")
PATH_REQUIREMENT = re.compile(r"\s*(?:(?:-e|--editable)[\s=]*)?(?P<path>(?:\.{1,2}(?=[/\[\s#]|$)|/|file:)[^\s#]*)")


class ProjectRequirements(TypedDict):
    """The input for pip: texts by file name; the main file refers to the others."""

    file: str  # path of the file in the project
    main: str
    texts: dict[str, str]
    digest: str


def read_text(path: Path) -> str:
    """Return the text of a file. Raise ValueError if it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than 1 MiB; requirements are text, one per line")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_dependencies(source: Path, extras: list[str]) -> list[str]:
    """Return the dependencies in pyproject.toml, including the given extras. Raise ValueError if it is invalid."""
    path = source / PYPROJECT
    if not path.is_file():
        return []
    try:
        project = tomllib.loads(read_text(path)).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    optional = project.get("optional-dependencies", {})
    dependencies = list(project.get("dependencies", []))
    pending, included = list(extras), set()
    own_extras = re.compile(
        rf"\s*{re.escape(str(project.get('name', '')))}\s*\[(?P<extras>[^\]]*)\]\s*\Z", re.IGNORECASE
    )
    while pending:
        extra = pending.pop(0)
        if extra in included:
            continue
        included.add(extra)
        for requirement in optional.get(extra, []):
            match = own_extras.match(requirement) if isinstance(requirement, str) else None
            if match:  # the project's own name refers to more of its own extras, not to a package in the index
                pending += [name.strip() for name in match["extras"].split(",")]
            else:
                dependencies.append(requirement)
    if not all(isinstance(requirement, str) for requirement in dependencies):
        raise ValueError(f"{path}: dependencies must be strings, as pip expects them")
    return dependencies


def replace_project_paths(source: Path, name: str, text: str) -> str:
    """Return a requirements file with the project itself replaced by its dependencies.

    Raise ValueError for other paths: pip would look for them on the node, from where it is started.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        match = PATH_REQUIREMENT.match(line)
        if not match:
            lines.append(line)
            continue
        path, _bracket, extras = match["path"].partition("[")
        if path not in (".", "./"):
            raise ValueError(
                f"{source / name} has the path {match['path']} on line {number}, which pip would look for on the "
                f"nodes. Put it in python_env_editable as ~/{source.name}/..., and the other requirements in "
                "python_env_requirements_files"
            )
        lines += read_dependencies(source, [extra.strip() for extra in extras.rstrip("]").split(",") if extra])
    return "\n".join([*lines, ""])


def read_files(source: Path) -> dict[str, str]:
    """Return the contents of requirements.txt and of all project files that it refers to, by their names in it."""
    texts: dict[str, str] = {}
    pending = [REQUIREMENTS]
    while pending:
        name = pending.pop()
        if name in texts:
            continue
        if name.startswith("../") or os.path.isabs(name) or len(texts) == MAX_FILES:
            raise ValueError(
                f"{source / REQUIREMENTS} refers to {name}, but it may refer only to files in the project, and to "
                f"at most {MAX_FILES} of them"
            )
        text = read_text(source / name)
        texts[name] = replace_project_paths(source, name, text)
        for line in text.splitlines():
            match = FILE_REFERENCE.match(line)
            if match and "://" not in match["path"]:
                pending.append(os.path.normpath(os.path.join(os.path.dirname(name), match["path"])))
    return dict(sorted(texts.items()))


def read_project(directory: str) -> ProjectRequirements | None:
    """Read the requirements of a project directory; return None if it has none. Raise ValueError for invalid ones."""
    if not directory:
        return None
    source = Path(os.path.abspath(os.path.expanduser(directory)))
    if (source / REQUIREMENTS).is_file():
        return make_project(REQUIREMENTS, read_files(source))
    names = read_dependencies(source, [])
    return make_project(PYPROJECT, {REQUIREMENTS: "\n".join([*names, ""])}) if names else None


def make_project(file: str, texts: Mapping[str, str]) -> ProjectRequirements | None:
    """Return the given requirements and their hash, or None if all lines are comments or blank."""
    requirements_by_file: dict[str, Any] = {}
    for name, text in texts.items():
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
        requirements_by_file[name] = [line for line in lines if line]
    if not any(requirements_by_file.values()):
        return None
    digest = hashlib.sha256(json.dumps(requirements_by_file, sort_keys=True).encode()).hexdigest()
    return {"file": file, "main": REQUIREMENTS, "texts": dict(texts), "digest": digest}


def read_declared(source: str, use_project: bool, requirements: list[str], editable: list[str]) -> dict[str, list[str]]:
    """Return all requirements that can be read on this machine, as lines by the file or setting that contains them.

    Args:
        source: directory of the project, "" if there is none here.
        use_project: whether the project's own requirements are installed.
        requirements: those of the setting python_env_requirements.
        editable: source trees on the nodes; those that are copies of the project can be read here.
    """
    declared = {"python_env_requirements": list(requirements)}
    project = read_project(source) if use_project else None
    if project:
        names = {REQUIREMENTS: project["file"]} if project["file"] == PYPROJECT else {}
        declared.update({names.get(name, name): text.splitlines() for name, text in project["texts"].items()})
    path = Path(os.path.abspath(os.path.expanduser(source))) if source else None
    for tree in editable:
        directory, _bracket, extras = tree.partition("[")
        if path and os.path.basename(directory.rstrip("/")) == path.name:
            extra_names = [extra.strip() for extra in extras.rstrip("]").split(",") if extra.strip()]
            declared[f"{PYPROJECT} ({tree})"] = read_dependencies(path, extra_names)
    return {name: lines for name, lines in declared.items() if lines}
