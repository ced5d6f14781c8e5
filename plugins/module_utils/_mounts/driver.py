# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interface of a mount driver: its requirements, its files, and its known failures.

Each driver is a file with one class that does no I/O; `ensure.py` does it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping

# Characters that must not appear in a line of mount options or of a unit; a driver may allow more.
FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f,\"'\\]")


class MountError(Exception):
    """A mount that failed or was refused, with cause and remedy for the user."""


@dataclass(frozen=True)
class DesiredMount:
    """The desired state of one mount."""

    path: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)  # credentials, without empty values
    read_only: bool = False
    uid: int = 0
    gid: int = 0
    timeout: int = 30  # seconds, for each wait


@dataclass(frozen=True)
class UnitContent:
    """The content of the unit; `options` are those of `mount -o`."""

    what: str
    fs_type: str
    options: tuple[str, ...]
    environment_file: str = ""


@dataclass(frozen=True)
class KnownFailure:
    """A failure recognized by a log message, with cause and remedy, in which {1} is the pattern's first group."""

    pattern: str
    cause: str
    remedy: str


class MountDriver:
    """A kind of mount."""

    name = ""
    program = ""  # required program
    role = ""  # role that installs the driver
    filesystem = ""  # file system that the kernel must support: fuse or cifs
    device = ""  # required device; "" for none
    kernel_pattern = ""  # regular expression for kernel messages to show; "" for none
    causes: tuple[KnownFailure, ...] = ()

    def problems(self, mount: DesiredMount) -> list[str]:
        """Return the reasons for refusing a mount."""
        return [
            f"option {name} has the value {value!r}: mount options cannot contain commas, quotes, backslashes, spaces "
            "or control characters"
            for name, value in mount.options.items()
            if not isinstance(value, bool) and value is not None and FORBIDDEN_CHARACTERS.search(str(value))
        ]

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return the content of the credentials file, or an empty string if there are no credentials."""
        raise NotImplementedError

    def parts(self, mount: DesiredMount, credentials_file: str) -> UnitContent:
        """Return the unit's content; credentials_file is "" if there are no credentials."""
        raise NotImplementedError

    def directories(self, mount: DesiredMount) -> list[str]:
        """Return the directories that must exist, private to root, such as caches."""
        return []

    def may_probe(self, mount: DesiredMount) -> bool:
        """Return whether the mount can be verified by writing and removing a file."""
        return not mount.read_only

    def diagnose(self, text: str) -> tuple[str, str] | None:
        """Return a failure's cause and remedy based on messages from the journal and from programs, or None."""
        for failure in self.causes:
            match = re.search(failure.pattern, text, re.IGNORECASE)
            if match:
                groups = (match[0], *("" if group is None else group for group in match.groups()))
                return failure.cause.format(*groups), failure.remedy.format(*groups)
        return None


def common_options(mount: DesiredMount) -> dict[str, Any]:
    """Return the options that s3fs and mount.cifs share. mount-s3 has its own, some of them required."""
    return {
        "_netdev": True,
        "nofail": True,
        "ro" if mount.read_only else "rw": True,
        "nosuid": True,
        "nodev": True,
        "uid": mount.uid,
        "gid": mount.gid,
    }


def merge_options(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options from several sources; later values win, at the position of the first."""
    result: dict[str, Any] = {}
    for part in parts:
        result.update(part)
    return result
