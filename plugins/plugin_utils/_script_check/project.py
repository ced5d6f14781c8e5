# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a script and the modules of its project that it imports."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import Module

MAX_FILES = 60  # the nearest files: those that the script imports, then those that these import
MAX_BYTES = 400_000  # total bytes of all files; they take half a second
MAX_FILE_BYTES = 1 << 20


class ScriptError(Exception):
    """The script cannot be checked; the message explains why."""


def read_module(name: str, path: Path, display_path: str) -> Module:
    """Read and parse a file. Raise ScriptError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ScriptError(f"{path} is larger than 1 MiB, so it is not a Python script")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes such as "\d"
            return Module(name, display_path, text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        remedy = "Correct the indentation" if isinstance(error, IndentationError) else "Only Python 3 can be checked"
        raise ScriptError(f"{path}{line}: {reason}. {remedy}") from error


def imported_names(module: Module) -> Iterator[str]:
    """Yield the names of all modules that a file may import, most specific first."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.absolute_name(node)
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
            if base:
                yield base


def locate(name: str, roots: Sequence[Path]) -> tuple[Path, str] | None:
    """Return the file of a project module and its import name, or None if it is not in the project."""
    for root in roots:
        path = root.joinpath(*name.split("."))
        if path.with_suffix(".py").is_file():
            return path.with_suffix(".py"), name
        if (path / "__init__.py").is_file():
            return path / "__init__.py", f"{name}.__init__"
    return None


def read_project(script: Path, directories: Sequence[Path] = ()) -> list[Module]:
    """Return the script and the project modules that it imports, directly or indirectly. Raise ScriptError.

    directories: directories to search for modules, in addition to the script's own. A module that cannot be parsed is
    left out, since the script may never import it.
    """
    roots = list(dict.fromkeys([script.parent, *directories]))
    display_root = next((directory for directory in directories if directory in script.parents), script.parent)
    modules = [read_module("__main__", script, str(script.relative_to(display_root)))]
    paths = {script.resolve()}
    size = number = 0
    while number < len(modules):
        number += 1
        for name in imported_names(modules[number - 1]):
            location = locate(name, roots)
            if location is None or location[0].resolve() in paths:
                continue
            path = location[0]
            paths.add(path.resolve())
            size += path.stat().st_size
            if len(modules) >= MAX_FILES or size > MAX_BYTES:
                return modules
            display_path = path.relative_to(display_root) if path.is_relative_to(display_root) else path
            try:
                modules.append(read_module(location[1], path, str(display_path)))
            except ScriptError:
                continue
    return modules
