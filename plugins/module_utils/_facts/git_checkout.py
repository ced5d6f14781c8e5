# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the commit of the git checkout that a job starts from.

Runs as the job's user. Reads the commit from a few small files, without git. Only git can tell whether files have
changed since.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

GIT_TIMEOUT = 3.0  # seconds; 0.01 is usual
MAX_BYTES = 16 * 2**20  # bytes of a file of references; 100,000 references take about 8 MB
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
REFERENCE = re.compile(r"refs(?:/(?!\.)[^/\0\n]+)+")
MAX_REFERENCES = 5  # number of references followed in a chain; git's own limit
CHANGED = re.compile(r"^[ MTADRCU]{2} ", re.MULTILINE)  # a line of git status for a tracked file


def read_text(*path: str) -> str:
    """Return the text of a file, or "" if it cannot be read."""
    try:
        descriptor = os.open(os.path.join(*path), os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            return stream.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return ""


def git_directory(directory: str) -> str:
    """Return the git directory of the checkout that contains a directory, or ""."""
    current = os.path.realpath(directory)
    while True:
        path = os.path.join(current, ".git")
        if os.path.isdir(path):
            return path
        text = read_text(path)  # a file in a worktree or a submodule
        if text.startswith("gitdir: "):
            return os.path.join(current, text[len("gitdir: ") :].rstrip("\n"))
        if current == "/":
            return ""
        current = os.path.dirname(current)


def commit_of(git: str) -> str:
    """Return the commit checked out in a git directory, or "" if it cannot be read."""
    common = os.path.join(git, read_text(git, "commondir").strip())  # for a worktree, the repository's directory
    reference = read_text(git, "HEAD").strip()
    for _reference in range(MAX_REFERENCES):
        if COMMIT.fullmatch(reference):
            return reference
        name = reference[len("ref: ") :]
        if not reference.startswith("ref: ") or not REFERENCE.fullmatch(name):
            return ""
        reference = read_text(git, name).strip() or read_text(common, name).strip() or read_packed(common, name)
    return ""


def read_packed(common: str, name: str) -> str:
    """Return the value of a packed reference, or "" if it is not packed."""
    match = re.search(rf"^([0-9a-f]+) {re.escape(name)}$", read_text(common, "packed-refs"), re.MULTILINE)
    return match[1] if match else ""


class CheckoutQuery:
    """A query for the checkout that contains a directory, started on creation."""

    def __init__(self, directory: str) -> None:
        git = git_directory(directory)
        self.commit = commit_of(git) if git else ""
        self.status: Command | None = None
        self.deadline = time.monotonic() + GIT_TIMEOUT
        program = shutil.which("git") if self.commit else None
        if program:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
            arguments = ["--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "color.ui=false", "status"]
            options = ["--porcelain", "--untracked-files=no", "--ignore-submodules=all"]
            self.status = Command([program, *arguments, *options], cwd=directory, env={**environment, "LC_ALL": "C"})

    def result(self) -> dict[str, Any] | None:
        """Return commit and dirty (None if unknown), or None if there is no checkout."""
        if not self.commit:
            return None
        output = self.status.output(self.deadline) if self.status else None
        succeeded = output is not None and output.code == 0
        return {"commit": self.commit, "dirty": bool(CHANGED.search(output.text)) if output and succeeded else None}
