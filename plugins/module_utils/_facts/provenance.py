# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run's inputs on a node, except its code: packages, data and models, so that the run can be repeated exactly.

Nothing is imported or changed. Large inputs are identified by the names and sizes of their files, small files also by
their content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time

from ansible_collections.muster.training.plugins.module_utils._facts.software import METADATA_NAME
from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    FileWalk,
    list_directory,
    read_bytes,
    read_json,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._facts.software import SoftwareQuery

LOCK_BYTES = 4 << 20
LOCK_FIELDS = ("layer", "order", "key", "python", "project", "project_name", "packages", "editable", "trees", "files")
MAX_LOCKS = 8
MAX_DISTRIBUTIONS = 20_000  # number of entries in one site-packages directory
MAX_INPUTS = 16
MAX_INPUT_FILES = 20_000
LISTING_TIMEOUT = 1.0  # seconds
MAX_HASHED_FILE = 1 << 20  # bytes; larger files are identified by their size
MAX_HASHED_BYTES = 32 << 20  # total bytes of all inputs
MAX_REPOSITORIES = 200
MAX_INDEX_BYTES = 64 << 20
# Options whose value is a file or directory that the job reads. Directories that it writes to differ between runs.
INPUT_OPTION = re.compile(
    r"--?(?:[\w.-]*[-_.])?(?:data|dataset|datasets|train|valid|validation|val|eval|test|corpus|input|inputs|model|tokenizer|"
    r"pretrained|vocab|config|deepspeed)(?:[-_.](?:dir|directory|path|file|files|root|name|name[-_]or[-_]path|set|config))*",
    re.IGNORECASE,
)
COMMIT = re.compile(r"[0-9a-f]{40}")
STAGE_INDEX = ".muster-stage/index.jsonl"  # written by the role stage_data, with a checksum of each file


class ProvenanceQuery:
    """A query for a job's packages and inputs.

    software: the query of the interpreter's search path; None if there is no interpreter to query.
    """

    def __init__(
        self,
        software: SoftwareQuery | None,
        arguments: Sequence[str],
        directory: str,
        home: str,
        dead_mount: Callable[[str], str],
    ) -> None:
        self.software, self.home = software, home
        paths = {
            option: os.path.normpath(os.path.join(directory, os.path.expanduser(value)))
            for option, value in input_arguments(arguments).items()
        }
        self.inputs = describe_inputs({option: path for option, path in paths.items() if not dead_mount(path)})

    def result(self) -> dict[str, Any]:
        """Return environment (python, packages, home, manager, locks), inputs by option, repositories by name."""
        return {
            "environment": self.environment(),
            "inputs": self.inputs,
            "repositories": read_repositories(os.path.join(self.home, ".cache", "huggingface", "hub")),
        }

    def environment(self) -> dict[str, Any]:
        """Return the packages of the interpreter, and the locks if the role python_env has installed them."""
        empty: dict[str, Any] = {"python": "", "packages": {}, "home": "", "manager": "", "locks": []}
        if self.software is None:
            return empty
        output = self.software.command.output(self.software.deadline)
        line = next((line for line in output.text.splitlines() if "\0" in line), "")
        if not line:
            return empty
        python, _prefix, *search_path = line.split("\0")
        # do not use the interpreter's own prefix: the role writes its files next to the environment's directory
        environment = os.path.dirname(os.path.dirname(self.software.interpreter))
        manager = read_text(os.path.join(environment, ".muster"))
        home = os.path.dirname(environment) if manager else ""
        return {
            "python": python,
            "packages": installed_versions([path for path in search_path if path]),
            "home": home,
            "manager": manager,
            "locks": read_locks(os.path.join(home, "locks")) if home else [],
        }


def read_text(path: str) -> str:
    """Return the short text of a file, or "" if it cannot be read."""
    try:
        return read_bytes(path, 256).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def installed_versions(search_path: Sequence[str]) -> dict[str, str]:
    """Return {normalized name: version} of all distributions; the first match on the interpreter's path counts."""
    versions: dict[str, str] = {}
    for directory in search_path:
        for entry in list_directory(directory, MAX_DISTRIBUTIONS):
            match = METADATA_NAME.match(entry)
            if match:
                versions.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    return versions


def read_locks(directory: str) -> list[dict[str, Any]]:
    """Return an environment's locks in the order of their layers."""
    names = [name for name in list_directory(directory) if name.endswith(".json")]
    documents = [read_json(os.path.join(directory, name), LOCK_BYTES) for name in names[:MAX_LOCKS]]
    locks = [
        {field: document[field] for field in LOCK_FIELDS if field in document}
        for document in documents
        if isinstance(document, dict) and isinstance(document.get("files"), list)
    ]
    return sorted(locks, key=lambda lock: str(lock.get("order", 0)).zfill(9))


def input_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Return {option: path} for the files and directories that a job's arguments name as inputs."""
    options: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
        if INPUT_OPTION.fullmatch(name) and value and not value.startswith("-") and "://" not in value:
            options.setdefault(name.lstrip("-"), value)
    return dict(list(options.items())[:MAX_INPUTS])


def describe_inputs(paths: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return path, files, bytes and digest for the paths that exist; the digest is "" if not all files were listed."""
    inputs: dict[str, dict[str, Any]] = {}
    budget = MAX_HASHED_BYTES
    for option, path in paths.items():
        if not os.path.exists(path):
            continue
        inputs[option], budget = describe_input(path, budget)
    return inputs


def describe_input(path: str, budget: int) -> tuple[dict[str, Any], int]:
    """Return the description of a file or directory, and how many bytes may still be hashed."""
    files, complete = list_files(path)
    staged = staged_checksums(path) if complete else {}
    digest = hashlib.sha256()
    for name, status in sorted(files.items()):
        size = status.st_size
        content = staged.get((name, size, status.st_mtime_ns), "")
        if complete and not content and size <= min(MAX_HASHED_FILE, budget):
            with contextlib.suppress(OSError):
                content = hashlib.sha256(read_bytes(os.path.join(path, name) if name else path, size)).hexdigest()
                budget -= size
        digest.update(json.dumps([name, size, content]).encode())
    description = {
        "path": path,
        "files": len(files),
        "bytes": sum(status.st_size for status in files.values()),
        "digest": digest.hexdigest()[:16] if complete else "",
    }
    return description, budget


def list_files(path: str) -> tuple[dict[str, os.stat_result], bool]:
    """Return an input's files, and whether the list is complete; if the input is itself a file, its name is ""."""
    if not os.path.isdir(path):
        return {"": os.stat(path)}, True
    deadline = time.monotonic() + LISTING_TIMEOUT
    files: dict[str, os.stat_result] = {}
    walk = FileWalk(path, MAX_INPUT_FILES)
    for name, status in walk:
        if time.monotonic() > deadline:  # a network mount
            return files, False
        if not name.startswith(".muster-stage/"):
            files[name] = status
    return files, not walk.truncated


def staged_checksums(path: str) -> dict[tuple[str, int, int], str]:
    """Return the checksums that the role stage_data has verified in a directory, by each file's path, size and time."""
    checksums: dict[tuple[str, int, int], str] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in read_bytes(os.path.join(path, STAGE_INDEX), MAX_INDEX_BYTES).decode().splitlines():
            name, size, time_ns, checksum = json.loads(line)
            checksums[str(name), int(size), int(time_ns)] = str(checksum)
    return checksums


def read_repositories(cache: str) -> dict[str, str]:
    """Return {name: commit} for the models and datasets in a Hugging Face Hub cache."""
    commits: dict[str, str] = {}
    for folder in list_directory(cache)[:MAX_REPOSITORIES]:
        kind, *parts = folder.split("--")
        if kind not in ("models", "datasets") or not parts:
            continue
        commit = read_text(os.path.join(cache, folder, "refs", "main"))
        snapshots = [
            name for name in list_directory(os.path.join(cache, folder, "snapshots")) if COMMIT.fullmatch(name)
        ]
        if commit in snapshots or len(snapshots) == 1:
            commits["/".join(parts)] = commit if commit in snapshots else snapshots[0]
    return commits
