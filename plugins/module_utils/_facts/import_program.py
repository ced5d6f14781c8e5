# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Import what a job imports, with the job's interpreter, and run a kernel on each GPU.

Sent to that interpreter as a program (``-c``), in the job's environment or image; imports only the standard library.

The job's sources are only parsed. Libraries that they import when they start are imported here, as the job would: those
in a site-packages directory or in the standard library. The user's modules are not imported, since importing them may
have effects; the libraries that they import in turn are found in their source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from typing import Any

MARK = "MUSTER-IMPORTS "  # prefix of each line of the result; libraries print to the same stream
MAX_FILES = 60  # number of the job's files that are read, the nearest first
MAX_FILE_BYTES = 2**20
MAX_FAILURES = 20
MAX_ERROR = 1500  # number of characters of an exception
MAX_CACHE_BYTES = 65536
MAX_CACHE_FILES = 32
CACHE_LIFETIME = 86400.0  # seconds; changes in a package's files do not show in its directory
CUDA_LIFETIME = 3600.0  # seconds for which GPUs that worked are assumed to be still working
LIBRARY_DIRECTORIES = {"site-packages", "dist-packages"}
# Libraries that have side effects when imported: they start MPI, print text or open a browser.
ACTING_LIBRARIES = {"mpi4py", "this", "antigravity", "idlelib", "turtledemo"}
# Code with which a job can make modules importable that this program cannot find.
PATH_CHANGES = (
    *("sys.path", "sys.modules", "addsitedir", "sys.meta_path", "from sys import path", "import sys as"),
    *(".path.insert(", ".path.append(", "setup_root", "autoroot"),
)
SETS_VARIABLE = r"os\.environ\[[^\]]{1,100}\] *=(?!=)|os\.environ\.(?:setdefault|update)\(|os\.putenv\("
LONGEST_TEST = 70.0  # seconds; longer than the caller waits
LOCAL_RANK_OPTIONS = ("--local_rank", "--local-rank")


class ImportStatement:
    """An import that runs when its file is loaded."""

    def __init__(self, path: str, line: int, text: str, name: str) -> None:
        self.path = path
        self.line = line
        self.text = text
        self.name = name  # name of the top-level module


def catches_import_errors(handlers: list[ast.ExceptHandler]) -> bool:
    """Return whether a try statement survives a failed import."""
    import ast

    for handler in handlers:
        names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for name in names:
            if name is None or getattr(name, "id", getattr(name, "attr", "")) in (
                *("ImportError", "ModuleNotFoundError"),
                *("Exception", "BaseException", "OSError", "RuntimeError"),
            ):
                return True
    return False


def loaded_imports(body: list[ast.stmt], is_main: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that this code is certain to execute and whose failure ends it."""
    import ast

    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif isinstance(statement, ast.If):
            test = statement.test
            if is_main and isinstance(test, ast.Compare) and getattr(test.left, "id", "") == "__name__":
                yield from loaded_imports(statement.body, is_main)
        elif isinstance(statement, ast.Try):
            if not catches_import_errors(statement.handlers):
                yield from loaded_imports(statement.body, is_main)
            yield from loaded_imports(statement.finalbody, is_main)
        elif isinstance(statement, ast.With):
            if not any("suppress" in ast.dump(item.context_expr) for item in statement.items):
                yield from loaded_imports(statement.body, is_main)
        elif isinstance(statement, ast.ClassDef):
            yield from loaded_imports(statement.body, is_main)


def accepts_local_rank(tree: ast.AST) -> bool:
    """Return whether a file contains the option --local_rank, or a class with a field local_rank.

    Some argument parsers turn the fields of a class into options.
    """
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in LOCAL_RANK_OPTIONS:
            return True
        if isinstance(node, ast.ClassDef):
            fields = (entry.target for entry in node.body if isinstance(entry, ast.AnnAssign))
            if any(getattr(field, "id", "") == "local_rank" for field in fields):
                return True
    return False


def used_features(tree: ast.AST) -> Iterator[str]:
    """Yield the features that a file uses and that need more than Python packages: "compile", "deepspeed-ops"."""
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "compile" and getattr(node.value, "id", "") == "torch":
            yield "compile"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deepspeed.ops"):
            yield "deepspeed-ops"


class Sources:
    """The job's script or module, the user's modules that it loads, and the libraries that they import."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.features: set[str] = set()
        self.statements: list[ImportStatement] = []
        self.seen_paths: set[str] = set()
        self.kinds: dict[str, str] = {}  # kinds of top-level modules: library, local, missing or unknown
        self.directories: dict[str, list[str]] = {}  # directories of local packages
        self.changes_path = False
        self.sets_variables = False  # environment variables may affect what a library imports
        self.failures: list[dict[str, Any]] = []

    def read(self, path: str, module: str, is_main: bool) -> None:
        """Read a file and everything that it loads, in Python's order."""
        real_path = os.path.realpath(path)
        if real_path in self.seen_paths or len(self.seen_paths) >= MAX_FILES:
            return
        self.seen_paths.add(real_path)
        for statement in self.parse(path, is_main):
            for name in imported_names(statement, module, path.endswith("__init__.py")):
                for local_path, local_module in self.record(path, statement, name):
                    self.read(local_path, local_module, False)

    def parse(self, path: str, is_main: bool) -> list[ast.Import | ast.ImportFrom]:
        """Return a file's imports; a syntax error in the script counts as a failure."""
        import ast

        try:
            with open(path, "rb") as stream:
                data = stream.read(MAX_FILE_BYTES)
        except OSError:
            return []
        self.digest.update(data)
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 0) or 0
            if isinstance(error, SyntaxError) and len(data) < MAX_FILE_BYTES:
                version = "{}.{}".format(*sys.version_info[:2])
                self.failures.append(
                    {**failure(path, line, "", f"SyntaxError in Python {version}: {error.msg}"), "certain": is_main}
                )
            return []
        text = data.decode("utf-8", "replace")
        if any(change in text for change in PATH_CHANGES) or ("pip" in text and "install" in text):
            self.changes_path = True
        if re.search(SETS_VARIABLE, text):
            self.sets_variables = True
        self.features.update(used_features(tree))
        if accepts_local_rank(tree):
            self.features.add("local-rank")
        if "wandb.init" in text:
            self.features.add("wandb")
        return list(loaded_imports(tree.body, is_main))

    def record(self, path: str, statement: ast.Import | ast.ImportFrom, name: str) -> list[tuple[str, str]]:
        """Record an import if it is of a library; return the path and name of each user file that it loads."""
        import ast

        top = name.partition(".")[0]
        kind = self.kind(top)
        if kind in ("library", "missing"):
            if isinstance(statement, ast.Import):
                text = f"import {name}"
            else:
                names = ", ".join(alias.name for alias in statement.names)
                text = f"from {statement.module} import {names}"
            if text not in {entry.text for entry in self.statements}:
                self.statements.append(ImportStatement(path, statement.lineno, text, top))
            return []
        return list(self.local_files(name)) if kind == "local" else []

    def kind(self, top: str) -> str:
        """Return the kind of a top-level module, without importing it."""
        if top not in self.kinds:
            self.kinds[top] = self.find_kind(top)
        return self.kinds[top]

    def find_kind(self, top: str) -> str:
        import importlib.util

        if top in sys.builtin_module_names:
            return "library"
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return "unknown"
        if spec is None:
            return "missing"
        if spec.origin in ("built-in", "frozen"):
            return "library"
        paths = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
        if all(is_library(path) for path in paths):
            return "library"
        self.directories[top] = paths if spec.submodule_search_locations else [os.path.dirname(spec.origin or "")]
        return "local"

    def local_files(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the path and name of each user file that importing a module loads: its packages and the module
        itself.
        """
        parts = name.split(".")
        for directory in self.directories.get(parts[0], ()):
            is_package = os.path.basename(directory) == parts[0]
            base = os.path.dirname(directory) if is_package else directory
            for length in range(1, len(parts) + 1):
                path = os.path.join(base, *parts[:length])
                for candidate in (os.path.join(path, "__init__.py"), f"{path}.py"):
                    if os.path.isfile(candidate):
                        yield candidate, ".".join(parts[:length])
                        break


def imported_names(statement: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> list[str]:
    """Return the absolute names of the modules that a statement in a module may load."""
    import ast

    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    base = statement.module or ""
    if statement.level:
        parents = module.split(".") if module else []
        parents = parents[: len(parents) - statement.level + bool(is_package)]
        if not parents:
            return []
        base = ".".join([*parents, *([base] if base else [])])
        return [f"{base}.{alias.name}" for alias in statement.names]
    return [f"{base}.{alias.name}" for alias in statement.names]


def is_library(path: str) -> bool:
    """Return whether a module's file belongs to an installed package or to the standard library."""
    standard_library = os.path.dirname(os.__file__) + os.sep
    return bool(LIBRARY_DIRECTORIES & set(path.split(os.sep))) or path.startswith(standard_library)


def failure(path: str, line: int, statement: str, error: str) -> dict[str, Any]:
    """Return a failure: file, line, statement, error."""
    return {"file": path, "line": line, "statement": statement, "error": error[:MAX_ERROR], "certain": True}


def describe(error: BaseException) -> str:
    """Return an exception as Python displays it, without the traceback."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def import_libraries(sources: Sources, report: Reporter) -> list[dict[str, Any]]:
    """Execute the imports in order, and return the failures."""
    failures: list[dict[str, Any]] = []
    for statement in sources.statements:
        if statement.name in ACTING_LIBRARIES:
            continue
        report.line({"importing": statement.text, "file": statement.path, "line": statement.line})
        try:
            exec(compile(statement.text, statement.path, "exec"), {"__name__": "muster_import_test"})
        except BaseException as error:  # libraries may also call sys.exit
            entry = failure(statement.path, statement.line, statement.text, describe(error))
            # the job may find a module that this program does not find, or a library may import a different module
            is_own = isinstance(error, ImportError) and sources.changes_path
            is_other = isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] != statement.name
            entry["certain"] = not (is_own or (is_other and sources.sets_variables))
            if entry["error"] not in {earlier["error"] for earlier in failures}:
                failures.append(entry)
            if len(failures) >= MAX_FAILURES:
                break
    return failures


def run_kernels(report: Reporter) -> list[dict[str, Any]]:
    """Run a kernel on each GPU with the job's torch; return {"gpu", "error"} for those that fail.

    The number is -1 if CUDA does not start.
    """
    import importlib

    report.line({"importing": "import torch"})
    try:
        torch: Any = importlib.import_module("torch")
        if not (torch.version.cuda or torch.version.hip):
            return []
        report.line({"cuda": "starts"})
        torch.cuda.init()
        count = torch.cuda.device_count()
    except ImportError:
        return []  # the job does not use it, or its import failure has already been reported
    except Exception as error:
        return [{"gpu": -1, "error": describe(error)[:MAX_ERROR]}]
    failures = []
    for index in range(count):
        report.line({"cuda": f"GPU {index}"})
        try:
            torch.ones(8, device=f"cuda:{index}").add_(1).sum().item()
        except Exception as error:
            failures.append({"gpu": index, "error": describe(error)[:MAX_ERROR]})
    return failures


class Reporter:
    """Writes marked lines to the program's output, which libraries may close or redirect."""

    def __init__(self) -> None:
        self.descriptor = os.dup(1)

    def line(self, value: dict[str, Any]) -> None:
        """Write a line."""
        os.write(self.descriptor, f"\n{MARK}{json.dumps(value)}\n".encode())


# --- cache -----------------------------------------------------------------------------------------------------------


def read_first_line(path: str) -> str:
    """Return the first line of a kernel file, or "" if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def environment_digest(sources: Sources, key: str) -> str:
    """Return a digest of everything that affects the imports: interpreter, packages, and sources.

    A package that is installed, upgraded or removed changes the time of its site-packages directory.
    """
    times = []
    for directory in sys.path:
        with contextlib.suppress(OSError):
            times.append((directory, os.stat(directory).st_mtime_ns))
    libraries = [os.environ.get(name, "") for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")]
    machine = [os.uname().nodename, os.uname().release]
    statements = [statement.text for statement in sources.statements]
    identity = [key, sys.version, sys.executable, times, libraries, machine, statements, sources.digest.hexdigest()]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def cache_path(request: dict[str, Any], sources: Sources) -> str:
    """Return the path of the file that caches a successful result."""
    return os.path.join(request["cache"], environment_digest(sources, request["key"]) + ".json")


def boot_id() -> str:
    """Return an identifier for the machine's current boot and its driver version."""
    paths = ("/proc/sys/kernel/random/boot_id", "/sys/module/nvidia/version")
    return " ".join(map(read_first_line, paths))


def read_cache(path: str, now: float) -> dict[str, Any]:
    """Return the cached result for this environment, or {} if there is none or the file belongs to another user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != os.geteuid() or status.st_size > MAX_CACHE_BYTES:
                return {}
            entry = json.loads(stream.read(MAX_CACHE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    passed = entry.get("passed") if isinstance(entry, dict) else None
    is_valid = isinstance(passed, (int, float)) and 0 <= now - passed < CACHE_LIFETIME
    return entry if is_valid else {}


def write_cache(path: str, entry: dict[str, Any]) -> None:
    """Write an entry, and remove the oldest other entries."""
    directory = os.path.dirname(path)
    with contextlib.suppress(OSError):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(entry, stream)
        os.replace(temporary, path)
        entries = sorted(os.scandir(directory), key=lambda file: file.stat(follow_symlinks=False).st_mtime)
        for file in entries[:-MAX_CACHE_FILES]:
            os.unlink(file.path)


# --- program ---------------------------------------------------------------------------------------------------------


def read_sources(request: dict[str, Any]) -> Sources:
    """Return the job's sources, and set the first directory on the search path to the job's directory."""
    sources = Sources()
    if request["script"]:
        sys.path[0] = os.path.dirname(os.path.realpath(request["script"]))
        sources.read(request["script"], "", is_main=True)
        return sources
    sys.path[0] = os.getcwd()
    module = request["module"]
    top = module.partition(".")[0]
    if sources.kind(top) == "local":
        for path, name in [*sources.local_files(module), *sources.local_files(f"{module}.__main__")]:
            sources.read(path, name, is_main=True)
    elif module not in ("", "__main__"):
        sources.statements.append(ImportStatement(f"-m {module}", 0, f"import {top}", top))
    return sources


def test_imports(request: dict[str, Any], sources: Sources, report: Reporter) -> dict[str, Any]:
    """Return the import failures and GPU failures; recent successes are not tested again."""
    now = time.time()
    entry = read_cache(cache_path(request, sources), now) if request["cache"] else {}
    cached = bool(entry)
    failures = list(sources.failures)
    if not cached:
        failures += import_libraries(sources, report)
    cuda_failures: list[dict[str, Any]] = []
    cuda = entry.get("cuda")
    is_cuda_known = isinstance(cuda, list) and cuda[:1] == [boot_id()] and 0 <= now - cuda[1] < CUDA_LIFETIME
    if request["cuda"] and not is_cuda_known and not failures:
        cuda_failures = run_kernels(report)
        cuda = None if cuda_failures else [boot_id(), now]
    if request["cache"] and not failures and (not cached or cuda != entry.get("cuda")):
        # importing may have created directories for bytecode
        write_cache(cache_path(request, sources), {"passed": entry.get("passed", now), "cuda": cuda})
    return {"cached": cached, "failures": failures, "cuda": cuda_failures}


def main(request: dict[str, Any]) -> None:
    """Write the test result or, if `test` is false, only the information from the sources."""
    import faulthandler
    import sysconfig

    # in a container, nothing else ends a test whose caller has been killed
    faulthandler.dump_traceback_later(LONGEST_TEST, exit=True)
    report = Reporter()
    sources = read_sources(request)
    result: dict[str, Any] = {
        "tested": bool(request["test"]),
        "cached": False,
        "failures": sources.failures,
        "cuda": [],
        "libraries": sorted({statement.name for statement in sources.statements}),
        "features": sorted(sources.features),
        "files": len(sources.seen_paths),
        "python_h": os.path.isfile(os.path.join(sysconfig.get_path("include") or "/", "Python.h")),
    }
    if request["test"]:
        result.update(test_imports(request, sources, report))
    report.line({"result": result})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    os._exit(0)  # without the handlers that libraries registered
