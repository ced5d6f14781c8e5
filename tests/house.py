"""Code metrics: the longest functions and files, import cycles, private terms in names, and module_utils that never
reach a node.

    python -m tests.house [DIRECTORY]     for this checkout, or another one to compare with

The lengths hint at what to read next and are not limits. The command fails if a folder has more dialect than
IDIOM_LIMIT or if module_utils holds a file that no node runs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PACKAGE = "ansible_collections.muster.training."
TABLE_ROWS = 5  # for each kind, the longest first
# A program given as text: `python3 -c` followed by a file or variable, on one line or as list items
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
# Folders whose names must follow the glossary in CONTRIBUTING.md
STANDARD_TERMS = ("plugins", "roles", "tests", "extensions", "examples")
DISTINCT_CLASSES = ("plugins", "roles")  # folders in which each class name denotes one class
IDIOM_LIMIT = 0.02  # fraction of all bindings
DOCUMENTED = frozenset({"DOCUMENTATION", "RETURN"})  # variables of plugins whose YAML names options and return values
# Class names that Ansible looks up in each plugin
PLUGIN_CLASSES = frozenset(
    {"ActionModule", "CallbackModule", "FilterModule", "InventoryModule", "LookupModule", "ModuleDocFragment"}
)
# Words that the glossary replaces: as an entire name, or as part of one
IDIOM_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
        answer answers ask asked asks brought done else fault given goes gone heard keeps kept knows known leave
        leaves left lie lies look looked looks made makes meant named nothing one ones other others ours own
        place placed places reached rest said says seen shown somebody something stands taken tells theirs there
        told took trouble wanted way ways whole whose why words
        """,
    )
)
IDIOM_PARTS = frozenset(
    re.findall(
        r"\w+",
        """
        asked brought fault found gone heard leave leaves lies look looks meant ours patience place places proof
        prove proved said stands theirs there told trouble wanted way ways why words
        """,
    )
)
PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
PROGRAM_LOOKUP = re.compile(r"lookup\('muster\.training\.program_files'((?:,\s*'[\w.]+')+)")
LOOKUP_TERM = re.compile(r"'([\w.]+)'")
QUOTED_MODULE = re.compile(r"\"(_[a-z_]+(?:\.[a-z_]+)*)\"")


class Piece(NamedTuple):
    """A class, function or file, with its length in lines and the number of attributes that its methods set on self."""

    lines: int
    name: str
    attributes: int = 0


class Idiom(NamedTuple):
    """The names bound or documented in a folder, and those that contain a word that the glossary replaces."""

    bindings: int
    names: tuple[str, ...]

    @property
    def share(self) -> float:
        return len(self.names) / max(self.bindings, 1)


def sources(root: Path, room: str) -> Iterator[Path]:
    """Yield the Python files in a part of the checkout."""
    return (path for path in sorted((root / room).rglob("*.py")) if "build" not in path.relative_to(root).parts)


def pieces(path: Path, root: Path) -> tuple[list[Piece], list[Piece]]:
    """Return the classes and the functions of a file."""
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
    """Yield the attributes that a class's methods set on self."""
    for child in ast.walk(node):
        if not (isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store)):
            continue
        if isinstance(child.value, ast.Name) and child.value.id == "self":
            yield child.attr


def repeated_classes(root: Path) -> dict[str, list[str]]:
    """Return the names shared by several classes, with their files, except for names that Ansible prescribes."""
    files: dict[str, list[str]] = {}
    for folder in DISTINCT_CLASSES:
        for path in sources(root, folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name not in PLUGIN_CLASSES:
                    files.setdefault(node.name, []).append(str(path.relative_to(root)))
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a file binds, with its line: definitions, parameters, variables, attributes and aliases."""
    for node in ast.walk(tree):
        name: str | None = None
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler)):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.alias):
            name = node.asname
        if name:
            yield name, getattr(node, "lineno", 0)


def documented_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each option and return value of a plugin or documentation fragment, with the line of its documentation."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "ModuleDocFragment"]
    parts = [child for node in classes for child in node.body]  # a fragment's variables may have any name
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
            continue
        variables = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if not isinstance(node.value.value, str) or not (node in parts or variables & DOCUMENTED):
            continue
        document = yaml.load(node.value.value, Loader=yaml.CSafeLoader) or {}
        entries = document if "RETURN" in variables else document.get("options")
        for name in nested_names(entries):
            yield name, node.lineno


def nested_names(entries: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the names of options or return values, and those of their suboptions or parts."""
    for name, entry in (entries or {}).items():
        yield str(name)
        for key in ("suboptions", "contains"):
            yield from nested_names(entry.get(key))


def is_idiom(name: str) -> bool:
    """Return whether a name consists of, or contains, a word that the glossary replaces."""
    return name.lower() in IDIOM_NAMES or any(part.lower() in IDIOM_PARTS for part in PART.findall(name))


def idiom(root: Path, folder: str) -> Idiom:
    """Return the names that a folder's Python files bind or document and that contain a word the glossary replaces."""
    total = 0
    names = []
    for path in sources(root, folder):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, line in (*bindings(tree), *documented_names(tree)):
            total += 1
            if is_idiom(name):
                names.append(f"{path.relative_to(root)}:{line}: {name}")
    return Idiom(total, tuple(names))


def imports(root: Path) -> dict[str, set[str]]:
    """Return for each module in plugins the modules in plugins that it imports."""
    graph: dict[str, set[str]] = {}
    for path in sources(root, "plugins"):
        importer = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        graph[importer] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                module = str(node.module).removeprefix(PACKAGE)
                graph[importer] |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name: (imported & graph.keys()) - {name} for name, imported in graph.items()}


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the import cycles: groups of modules that all import each other, directly or indirectly."""
    closures = {name: reachable(graph, [name]) for name in graph}
    cycles: list[list[str]] = []
    for name in sorted(graph):
        group = sorted(peer for peer in closures[name] if name in closures[peer])
        if group and group not in cycles:
            cycles.append(group)
    return cycles


def reachable(graph: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """Return all modules that the given modules import, directly or indirectly."""
    closure: set[str] = set()
    queue = [imported for name in start for imported in graph[name]]
    while queue:
        name = queue.pop()
        if name not in closure:
            closure.add(name)
            queue += graph[name]
    return closure


def never_on_nodes(root: Path, graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the files of module_utils that no node runs.

    Nodes run modules without an action plugin of the same name, the module_utils that controller code names in a string
    for call_node, run_code or the supervisor, the programs that roles install, and everything that these import.
    """
    actions = {path.stem for path in sources(root, "plugins/action")}
    roots = {name for name in graph if name.startswith("plugins.modules.") and name.rpartition(".")[2] not in actions}
    for folder in ("plugins/action", "plugins/plugin_utils"):
        for path in sources(root, folder):
            quoted = QUOTED_MODULE.findall(path.read_text(encoding="utf-8"))
            roots |= {f"plugins.module_utils.{name}" for name in quoted} & graph.keys()
    roots |= {f"plugins.module_utils.{name}" for name in installed_programs(root)} & graph.keys()
    on_nodes = roots | reachable(graph, roots)
    return sorted(name for name in graph if name.startswith("plugins.module_utils.") and name not in on_nodes)


def installed_programs(root: Path) -> set[str]:
    """Return the module_utils that roles install as programs, such as "_stage_data.stage"."""
    texts = (path.read_text(encoding="utf-8") for path in (root / "roles").rglob("*.yml"))
    lookups = (lookup for text in texts for lookup in PROGRAM_LOOKUP.findall(text))
    return {name for lookup in lookups for name in LOOKUP_TERM.findall(lookup)}


def hidden_programs(root: Path) -> list[str]:
    """Return the files in roles that contain a program as a text."""
    files = sorted((root / "roles").rglob("*.yml"))
    return [str(path.relative_to(root)) for path in files if HIDDEN.search(path.read_text(encoding="utf-8"))]


def table(title: str, candidates: Iterable[Piece]) -> list[str]:
    """Format the longest pieces as lines for a terminal."""
    longest = sorted(candidates, reverse=True)[:TABLE_ROWS]
    suffixes = [f", {piece.attributes} attributes" if piece.attributes else "" for piece in longest]
    return [
        title,
        *(f"  {piece.lines:>5}  {piece.name}{suffix}" for piece, suffix in zip(longest, suffixes, strict=True)),
    ]


def report(root: Path) -> tuple[list[str], bool]:
    """Return all measures of a checkout as lines, and whether they are within the limits."""
    classes: list[Piece] = []
    functions: list[Piece] = []
    files: list[Piece] = []
    lines = [f"{'room':<22}{'files':>6}{'lines':>8}"]
    for room in ROOMS:
        of_room = [
            Piece(len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(root)))
            for path in [*sources(root, room), *sorted((root / room).rglob("*.yml"))]
        ]
        lines.append(f"{room:<22}{len(of_room):>6}{sum(piece.lines for piece in of_room):>8}")
        if room != "tests":
            files += of_room
            for path in sources(root, room):
                in_file = pieces(path, root)
                classes += in_file[0]
                functions += in_file[1]
    lines += ["", *table("longest classes", classes), *table("longest functions", functions), *table("files", files)]
    graph = imports(root)
    cycles, unreached, hidden = circles(graph), never_on_nodes(root, graph), hidden_programs(root)
    dialects = {folder: idiom(root, folder) for folder in STANDARD_TERMS}
    lines += ["", f"import circles: {len(cycles)}", *(f"  {' '.join(group)}" for group in cycles)]
    lines += [f"programs as text in roles: {len(hidden)}", *(f"  {name}" for name in hidden)]
    lines += [f"module_utils that no node runs: {len(unreached)}", *(f"  {name}" for name in unreached)]
    repeated = repeated_classes(root)
    lines += [f"class names of more than one class: {len(repeated)}"]
    lines += [f"  {name}: {', '.join(paths)}" for name, paths in repeated.items()]
    within = not unreached
    for folder, dialect in dialects.items():
        share = f"{dialect.share:.1%} of {dialect.bindings}"
        lines.append(f"dialect in names of {folder}: {share}, limit {IDIOM_LIMIT:.0%}")
        if dialect.share > IDIOM_LIMIT:
            within = False
            lines += [f"  {name}" for name in dialect.names]
    return lines, within


if __name__ == "__main__":
    measured, within_limits = report(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    print("\n".join(measured))
    sys.exit(not within_limits)
