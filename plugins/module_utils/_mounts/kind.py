# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interface of a kind of mount: its needs, its files, and what its failures mean. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. A kind is one file with one class of this shape, without input
or output; `node.py` does what it says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping

# What a line of mount options, or of a unit, cannot hold; each kind may allow more.
UNHOLDABLE = re.compile(r"[\x00-\x20\x7f,\"'\\]")


class MountError(Exception):
    """What was found, the cause and what to do, in words for a person."""


@dataclass(frozen=True)
class Wanted:
    """One mount as it is to be."""

    path: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)  # without what is empty
    read_only: bool = False
    uid: int = 0
    gid: int = 0
    timeout: int = 30  # seconds, the bound of every wait


@dataclass(frozen=True)
class Parts:
    """What stands in the unit. `options` are words as `mount -o` takes them."""

    what: str
    fs_type: str
    options: tuple[str, ...]
    environment_file: str = ""


@dataclass(frozen=True)
class Cause:
    """Words of a log, what they mean, and what to do. {1} in both is the first group of the pattern."""

    pattern: str
    cause: str
    remedy: str


class Kind:
    """One kind of mount."""

    name = ""
    program = ""  # that must be on the node
    role = ""  # that installs it
    filesystem = ""  # that the kernel must know: fuse, cifs
    device = ""  # that must be there, "" for none
    kernel_words = ""  # regular expression of the kernel's own lines that tell of it, "" for none
    causes: tuple[Cause, ...] = ()

    def problems(self, wanted: Wanted) -> list[str]:
        """Return what is refused, each with what was found, what is needed and what to do."""
        return [
            f"option {name} has the value {value!r}. Needed: a value without commas, quotes, backslashes, spaces and "
            "control characters, which a line of mount options cannot hold"
            for name, value in wanted.options.items()
            if not isinstance(value, bool) and value is not None and UNHOLDABLE.search(str(value))
        ]

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return the text of the credential file, "" if none is needed."""
        raise NotImplementedError

    def parts(self, wanted: Wanted, credentials_file: str) -> Parts:
        """Return what stands in the unit; credentials_file is "" if there are none."""
        raise NotImplementedError

    def directories(self, wanted: Wanted) -> list[str]:
        """Return directories that must be there, for root alone: caches."""
        return []

    def may_probe(self, wanted: Wanted) -> bool:
        """Whether an object can be written and removed again, as a proof."""
        return not wanted.read_only

    def diagnose(self, text: str) -> tuple[str, str] | None:
        """Return cause and remedy by what journal and programs have said; None if nothing is known."""
        for entry in self.causes:
            found = re.search(entry.pattern, text, re.IGNORECASE)
            if found:
                words = (found[0], *("" if group is None else group for group in found.groups()))
                return entry.cause.format(*words), entry.remedy.format(*words)
        return None


def of_every_mount(wanted: Wanted) -> dict[str, Any]:
    """Return the options that s3fs and mount.cifs take alike. Those of mount-s3 are its own, some of them required."""
    return {
        "_netdev": True,
        "nofail": True,
        "ro" if wanted.read_only else "rw": True,
        "nosuid": True,
        "nodev": True,
        "uid": wanted.uid,
        "gid": wanted.gid,
    }


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of several sources as one; the later ones win, and keep the place of the first."""
    result: dict[str, Any] = {}
    for part in parts:
        result.update(part)
    return result
