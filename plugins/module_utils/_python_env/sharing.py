# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Share files between the environments of a node with hard links, so that a second copy of torch takes no space.

It works for all managers alike, after an installation: a file that another environment has from the same wheel, with
the same content, becomes a link to that file. Packages are removed and updated by replacing files, so no environment
changes another. The first node does not download a wheel that another environment has already stored.
"""

from __future__ import annotations

import contextlib
import csv
import filecmp
import glob
import json
import os
import shutil
import stat

from ansible_collections.muster.training.plugins.module_utils._files.text import read
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import (
    EnvironmentPaths,
    normalize_name,
    sha256_of,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator

    Data = Dict[str, Any]

MIN_BYTES = 16 << 10  # minimum size of a file to link; there are many smaller files, but linking them would save little


def other_homes(home: str) -> list[str]:
    """Return the directories of the other environments on this node that belong to this user."""
    parent = os.path.dirname(home)
    base = os.path.dirname(parent) if os.path.basename(parent) == "envs" else home
    homes = [base, *sorted(glob.glob(os.path.join(base, "envs", "*")))]
    return [
        path
        for path in homes
        if path != home and os.path.isdir(os.path.join(path, "env")) and os.lstat(path).st_uid == os.geteuid()
    ]


def link(source: str, target: str) -> bool:
    """Replace a file with a link to another file; return whether that was possible."""
    with contextlib.suppress(OSError):
        os.unlink(target + ".link")
    try:
        os.link(source, target + ".link", follow_symlinks=False)
    except OSError:  # the link would cross file systems, or the file already has too many links
        return False
    os.replace(target + ".link", target)
    return True


def locked_files(lock: str) -> list[Data]:
    """Return the files in another environment's lock, which may be damaged or removed at any time."""
    try:
        content = json.loads(read(lock))
        entries = content["files"]
        return [entry for entry in entries if isinstance(entry["file"], str) and isinstance(entry["sha256"], str)]
    except (ValueError, KeyError, TypeError):
        return []


def adopt_wheels(paths: EnvironmentPaths, hashes: Iterable[str]) -> list[str]:
    """Link wheels with these SHA-256 hashes from other environments' stores into this one; return their names."""
    wanted = {digest for digest in hashes if digest}
    adopted = []
    for home in other_homes(paths.root):
        for lock in glob.glob(os.path.join(home, "locks", "*.json")):
            for entry in locked_files(lock):
                source = os.path.join(home, "store", entry["file"])
                target = os.path.join(paths.store, entry["file"])
                if entry["sha256"] not in wanted or os.path.exists(target) or not os.path.isfile(source):
                    continue
                if sha256_of(source) == entry["sha256"] and link(source, target):
                    wanted.discard(entry["sha256"])
                    adopted.append(entry["file"])
    return adopted


def recorded_files(environment: str, names: set[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the large files of packages in an environment: name in site-packages with hash, and path."""
    for site in glob.glob(os.path.join(environment, "lib", "python3*", "site-packages")):
        for record in glob.glob(os.path.join(site, "*.dist-info", "RECORD")):
            name = os.path.basename(os.path.dirname(record))[: -len(".dist-info")].rpartition("-")[0]
            if normalize_name(name) not in names:
                continue
            for row in csv.reader(read(record).splitlines()):
                is_inside = len(row) == 3 and not row[0].startswith(("/", "..")) and "/../" not in row[0]
                if is_inside and row[1] and row[2].isdigit() and int(row[2]) >= MIN_BYTES:
                    yield (row[0], row[1]), os.path.join(site, row[0])


def share_files(paths: EnvironmentPaths, names: set[str]) -> int:
    """Link the files of these packages to those in other environments; return the number of bytes saved."""
    saved = 0
    own_files = dict(recorded_files(paths.environment, names))
    for home in other_homes(paths.root):
        for key, source in recorded_files(os.path.join(home, "env"), names):
            target = own_files.get(key)
            if not target or not os.path.isfile(source) or not os.path.isfile(target):
                continue
            theirs, ours = os.lstat(source), os.lstat(target)
            if not stat.S_ISREG(theirs.st_mode) or theirs.st_uid != os.geteuid() or theirs.st_ino == ours.st_ino:
                continue
            # compares the contents, since the other file may have been edited
            if theirs.st_mode == ours.st_mode and filecmp.cmp(source, target, shallow=False) and link(source, target):
                saved += ours.st_size
    if saved:  # uv's cache still holds the files that were replaced
        shutil.rmtree(os.path.join(paths.root, "cache"), ignore_errors=True)
    return saved
