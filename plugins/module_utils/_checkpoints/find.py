# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the checkpoints below a directory on this node, and determine whether they are complete.

Everything there was written by a job: links are not followed, only regular files are opened, and the number of entries,
files and bytes that are read is limited.
"""

from __future__ import annotations

import collections
import os
import posixpath
import re
import stat

from ansible_collections.muster.training.plugins.module_utils._checkpoints.formats import deepspeed
from ansible_collections.muster.training.plugins.module_utils._checkpoints.judge import judge
from ansible_collections.muster.training.plugins.module_utils._checkpoints.registry import (
    FILES,
    directory_format,
    file_format,
    read_part,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoints.steps import step_of_name
from ansible_collections.muster.training.plugins.module_utils._files.bounded import FileWalk

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from collections.abc import Iterator
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint

LATEST = posixpath.join("..", deepspeed.LATEST)  # the only part outside the checkpoint's own directory
MAX_SCANNED = 100_000  # directory entries
MAX_DEPTH = 6  # maximum depth of a checkpoint below the directory; Lightning uses lightning_logs/version_0/checkpoints
MAX_PARTS = 20_000  # number of files in one checkpoint
MAX_READ_PARTS = 4_000  # number of files in one checkpoint whose content is read; for the others, only the size is
MAX_INSPECTED = 8  # number of newest checkpoints whose parts are read
HOME_OF_FILES = re.compile(r"(.*[-_.])?(checkpoints?|ckpts?|weights|snapshots?)([-_.].*)?\Z", re.I)
WEIGHTS_ONLY = ("safetensors", "torch")  # single-file formats, which may contain a model without the training state
SKIPPED = frozenset(("lost+found", "node_modules", "wandb", "site-packages", "__pycache__"))
UNFINISHED = (".torn", ".tmp", ".part", ".incomplete", ".bak")  # suffixes of names that are not checkpoints

# A path that may be a checkpoint. names: the names of a directory's entries, None for a file.
Candidate = collections.namedtuple("Candidate", "name format step unit saved")


class Scan:
    """The candidates below a directory, breadth first. truncated: whether there were too many entries to read all of
    them.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.scanned = 0
        self.truncated = False

    def __iter__(self) -> Iterator[Candidate]:
        queue = collections.deque([("", 0)])
        while queue:
            relative, depth = queue.popleft()
            directories, files = self.entries(relative)
            names = {*directories, *files}
            name = os.path.basename(relative or self.directory)
            form = directory_format(name, names)
            if form == FILES and any(step_of_name(entry)[0] is not None for entry in directories):
                form = ""  # a run directory named after its step or epochs, which holds checkpoints of its own
            if form:
                yield self.candidate(relative or ".", form)
                continue
            if deepspeed.LATEST in files:
                yield from self.tag_without_directory(relative, directories)
            for entry in sorted(files):
                if self.is_checkpoint_file(name, entry, depth):
                    yield self.candidate(posixpath.join(relative, entry), file_format(entry))
            if depth < MAX_DEPTH:
                queue.extend(
                    (posixpath.join(relative, entry), depth + 1)
                    for entry in sorted(directories)
                    if entry not in SKIPPED and not entry.startswith(".")
                )

    def entries(self, relative: str) -> tuple[set[str], set[str]]:
        """Return the names of a directory's subdirectories and regular files."""
        directories: set[str] = set()
        files: set[str] = set()
        try:
            with os.scandir(os.path.join(self.directory, relative)) as entries:
                for entry in entries:
                    self.scanned += 1
                    if self.scanned > MAX_SCANNED:
                        self.truncated = True
                        break
                    if entry.name.endswith(UNFINISHED):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.add(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        files.add(entry.name)
        except OSError:
            pass
        return directories, files

    @staticmethod
    def is_checkpoint_file(directory: str, name: str, depth: int) -> bool:
        """Return whether a file is itself a checkpoint rather than a weights file that may be the job's input."""
        form = file_format(name)
        if form == "lightning" or not form:
            return bool(form)
        return step_of_name(name)[0] is not None or depth == 0 or HOME_OF_FILES.match(directory) is not None

    def tag_without_directory(self, relative: str, directories: set[str]) -> Iterator[Candidate]:
        """Yield the tag that `latest` names if its directory does not exist or does not contain a checkpoint."""
        tag = deepspeed.read_latest(os.path.join(self.directory, relative, deepspeed.LATEST))
        if tag and (tag not in directories or not self.entries(posixpath.join(relative, tag))[1]):
            yield self.candidate(posixpath.join(relative, tag), "deepspeed")

    def candidate(self, relative: str, form: str) -> Candidate:
        path = os.path.join(self.directory, relative)
        try:
            saved = os.lstat(path).st_mtime
        except OSError:
            saved = 0.0
        name = os.path.basename(self.directory.rstrip("/")) if relative == "." else os.path.basename(relative)
        return Candidate(relative, form, *step_of_name(name), saved)


def order(candidate: Candidate) -> tuple[bool, int, float]:
    """Return a candidate's sort key: first by step, with those without a step first, then by time."""
    return candidate.step is not None, candidate.step or 0, candidate.saved


def keep_training_states(candidates: list[Candidate]) -> list[Candidate]:
    """Remove single weight files, such as the final model, if there are complete training checkpoints next to them."""
    training = [candidate for candidate in candidates if candidate.format not in WEIGHTS_ONLY]
    return training or candidates


def inspect(directory: str, candidate: Candidate, staged: Mapping[str, str] | None = None) -> Checkpoint:
    """Return a candidate with its parts and the verdict. staged: paths of files that replace its parts, by relative
    path.
    """
    path = os.path.normpath(os.path.join(directory, candidate.name))
    checkpoint: Checkpoint = {
        "name": candidate.name,
        "path": path,
        "format": candidate.format,
        "step": candidate.step,
        "unit": candidate.unit,
        "saved": candidate.saved,
        "seconds": 0.0,
        "size": 0,
        "parts": {},
        "damaged": {},
        "required": {},
        "recorded": {},
        "world_size": None,
        "fixed_world": False,
        "complete": False,
        "reason": "",
    }
    times = []
    for number, (relative, location, status) in enumerate(files_with(path, staged or {})):
        if number >= MAX_PARTS:
            checkpoint["damaged"][relative] = f"the checkpoint has more than {MAX_PARTS} files"
            break
        times.append(status.st_mtime)
        checkpoint["parts"][relative] = status.st_size
        if number < MAX_READ_PARTS:
            add_content(checkpoint, relative, location)
    if not checkpoint["parts"]:
        checkpoint["damaged"]["."] = "it has no files"
    if candidate.format == "deepspeed":
        add_latest(checkpoint, (staged or {}).get(LATEST, ""))
    checkpoint["size"] = sum(checkpoint["parts"].values())
    checkpoint["saved"] = max(times, default=candidate.saved)
    checkpoint["seconds"] = checkpoint["saved"] - min(times, default=candidate.saved)
    return judge(add_recorded_step(checkpoint))


def inspect_path(directory: str, name: str, staged: Mapping[str, str] | None = None) -> Checkpoint | None:
    """Return the checkpoint with this name below a directory, with the verdict, or None if there is none.

    staged: paths of files that would replace its parts, by relative path. The checkpoint need not exist then.
    """
    added = {part.split("/")[0] for part in staged or () if part not in ("", LATEST)}
    scan = Scan(directory)
    path = os.path.normpath(os.path.join(directory, name))
    base = os.path.basename(path)
    if os.path.islink(path):
        return None
    if os.path.isdir(path) or added:
        directories, files = scan.entries(name)
        form = directory_format(base, {*directories, *files, *added})
    else:
        form = file_format(base) if os.path.isfile(path) or "" in (staged or ()) else ""
    return inspect(directory, scan.candidate(name, form), staged) if form else None


def files_of(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield a checkpoint's regular files as (relative path, lstat result); "" is the checkpoint itself."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield "", status
    elif stat.S_ISDIR(status.st_mode):
        yield from FileWalk(path, MAX_SCANNED)


def files_with(path: str, staged: Mapping[str, str]) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield a checkpoint's files as (relative path, path, lstat result), including those that replace its parts."""
    for relative, status in files_of(path):
        if relative not in staged:
            yield relative, os.path.join(path, relative) if relative else path, status
    for relative, location in staged.items():
        if relative != LATEST:
            yield relative, location, os.lstat(location)


def add_content(checkpoint: Checkpoint, relative: str, path: str) -> None:
    """Add the information from a part's content."""
    part = read_part(path)
    directory = posixpath.dirname(relative)
    if part.get("problem"):
        checkpoint["damaged"][relative] = part["problem"]
    if part.get("recorded"):
        checkpoint["recorded"][relative] = part["recorded"]
    for name, size in part.get("required", {}).items():
        required = posixpath.join(directory, name)
        checkpoint["required"][required] = max(size, checkpoint["required"].get(required, 0))


def add_latest(checkpoint: Checkpoint, staged: str) -> None:
    """Add the file `latest` next to a tag directory; DeepSpeed loads the tag that it names.

    staged: path of the file that replaces it, "" if none does.
    """
    path = staged or os.path.join(os.path.dirname(checkpoint["path"]), deepspeed.LATEST)
    tag = deepspeed.read_latest(path)
    if not tag:
        return
    checkpoint["parts"][LATEST] = os.lstat(path).st_size
    step = step_of_name(tag)[0]
    if step is not None and checkpoint["step"] is not None and step < checkpoint["step"]:
        checkpoint["damaged"][LATEST] = f"it still names {tag}, so this checkpoint is still being saved"


def add_recorded_step(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the step that it records, or with the step in its name if it records none."""
    steps = [values["global_step"] for values in checkpoint["recorded"].values() if "global_step" in values]
    if steps and checkpoint["format"] in ("transformers", "lightning"):
        return {**checkpoint, "step": max(steps), "unit": "step"}
    return checkpoint


def find_checkpoints(directory: str, limit: int = MAX_INSPECTED) -> list[Checkpoint]:
    """Return the newest checkpoints below a directory, newest first, each with whether it is complete.

    The newest has the highest step or, if there are no steps, the newest file. limit: how many are inspected.
    """
    candidates = keep_training_states(list(Scan(directory)))
    newest = sorted(candidates, key=order, reverse=True)[:limit]
    # files without a step in their name, such as last.ckpt, may contain the step
    unnamed = [candidate for candidate in candidates if candidate.step is None and candidate not in newest][:limit]
    checkpoints = [inspect(directory, candidate) for candidate in [*newest, *unnamed]]
    return sort_newest_first(checkpoints)


def sort_newest_first(checkpoints: list[Checkpoint]) -> list[Checkpoint]:
    """Return checkpoints newest first: by step, with those without a step last, then by time."""
    return sorted(
        checkpoints,
        key=lambda checkpoint: (checkpoint["step"] is not None, checkpoint["step"] or 0, checkpoint["saved"]),
        reverse=True,
    )
