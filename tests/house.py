"""Code metrics: the longest classes, functions and files, import cycles, and programs hidden in roles.

    python -m tests.house [DIRECTORY]     for this checkout, or another one to compare with

They hint at what to read next, and are not limits: a longer piece that reads better may stay.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = "ansible_collections.muster.training."
SHOWN = 5  # per kind, the longest first
# A program as text: `python3 -c` followed by a file or variable, in one line or as list items
HIDDEN = re.compile(r"python3?[\"']?,?(?:\s+-)*\s*-c\b[\s,\"'-]*\{\{")
ROOMS = (
    "plugins/module_utils",
    "plugins/plugin_utils",
    "plugins/action",
    "plugins/modules",
    "roles",
    "playbooks",
    "tests",
)


class Piece(NamedTuple):
    """A class, a function or a file. lines: its length; attributes: those that a class's methods set on self."""

    lines: int
    name: str
    attributes: int = 0


def sources(root: Path, room: str) -> Iterator[Path]:
    """The Python files in a part of the checkout."""
    return (path for path in sorted((root / room).rglob("*.py")) if "build" not in path.relative_to(root).parts)


def pieces(path: Path, root: Path) -> tuple[list[Piece], list[Piece]]:
    """The classes and the functions of a file."""
    classes, functions = [], []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        name = f"{path.relative_to(root)}: {node.name}"
        if isinstance(node, ast.ClassDef):
            classes.append(Piece(lines, name, len(set(attributes(node)))))
        else:
            functions.append(Piece(lines, name))
    return classes, functions


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """The attributes that a class's methods set on self."""
    for one in ast.walk(node):
        if not (isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)):
            continue
        if isinstance(one.value, ast.Name) and one.value.id == "self":
            yield one.attr


def imports(root: Path) -> dict[str, set[str]]:
    """For each module in plugins, the modules in plugins that it imports."""
    found: dict[str, set[str]] = {}
    for path in sources(root, "plugins"):
        own = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found[own] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                module = str(node.module).removeprefix(PACKAGE)
                found[own] |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name: (known & found.keys()) - {name} for name, known in found.items()}


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The import cycles: groups of modules that all import each other, directly or indirectly."""
    reached = {name: reachable(graph, name) for name in graph}
    found: list[list[str]] = []
    for name in sorted(graph):
        group = sorted(other for other in reached[name] if name in reached[other])
        if group and group not in found:
            found.append(group)
    return found


def reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """All modules that a module imports, directly or indirectly."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def hidden_programs(root: Path) -> list[str]:
    """The files in roles that contain a program as text."""
    files = sorted((root / "roles").rglob("*.yml"))
    return [str(path.relative_to(root)) for path in files if HIDDEN.search(path.read_text(encoding="utf-8"))]


def table(title: str, found: Iterable[Piece]) -> list[str]:
    """The longest pieces, as lines for a terminal."""
    longest = sorted(found, reverse=True)[:SHOWN]
    more = [f", {one.attributes} attributes" if one.attributes else "" for one in longest]
    return [title, *(f"  {one.lines:>5}  {one.name}{rest}" for one, rest in zip(longest, more, strict=True))]


def report(root: Path) -> list[str]:
    """All measures of a checkout."""
    classes: list[Piece] = []
    functions: list[Piece] = []
    files: list[Piece] = []
    lines = [f"{'room':<22}{'files':>6}{'lines':>8}"]
    for room in ROOMS:
        of_room = [
            Piece(len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(root)))
            for path in [*sources(root, room), *sorted((root / room).rglob("*.yml"))]
        ]
        lines.append(f"{room:<22}{len(of_room):>6}{sum(one.lines for one in of_room):>8}")
        if room != "tests":
            files += of_room
            for path in sources(root, room):
                in_file = pieces(path, root)
                classes += in_file[0]
                functions += in_file[1]
    lines += ["", *table("longest classes", classes), *table("longest functions", functions), *table("files", files)]
    found = circles(imports(root))
    lines += ["", f"import circles: {len(found)}", *(f"  {' '.join(group)}" for group in found)]
    hidden = hidden_programs(root)
    return [*lines, f"programs as text in roles: {len(hidden)}", *(f"  {name}" for name in hidden)]


if __name__ == "__main__":
    print("\n".join(report(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())))
