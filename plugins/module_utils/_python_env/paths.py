# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths below an environment's directory, which are the same on all nodes."""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

CHUNK = 1 << 20
# Name, version, and what the wheel is built for, which is not examined.
WHEEL = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._]{0,100}[A-Za-z0-9])?)-([A-Za-z0-9][A-Za-z0-9_.+!]{0,100})-[A-Za-z0-9_.+-]{1,200}\.whl"
)
WHEEL_KINDS = ("wheel", "build", "tool")  # kinds of lock files


def sha256_of(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(CHUNK), b""):
            digest.update(piece)
    return digest.hexdigest()


def normalize_name(name: str) -> str:
    """Return the normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_release(file: str) -> tuple[str, str]:
    """Return the normalized name and the version from a wheel's file name. Raise ValueError if it is not a wheel name.

    Decoded before it is checked: a line break in it could add a pip option.
    """
    match = WHEEL.fullmatch(urllib.parse.unquote(file))
    if match is None:
        raise ValueError(f"{ascii(file)[:200]} is not the name of a wheel, such as NAME-VERSION-py3-none-any.whl")
    return normalize_name(match[1]), match[2]


class EnvironmentPaths:
    """The paths below an environment's directory, which is the same on all nodes."""

    def __init__(self, request: Data) -> None:
        self.root = request["directory"]
        self.environment = os.path.join(self.root, "env")
        self.python = os.path.join(self.environment, "bin", "python")
        self.store = os.path.join(self.root, "store")
        self.tools = os.path.join(self.root, "tools")
        self.uv = os.path.join(self.tools, "uv")
        self.conda = os.path.join(self.root, "conda")
        self.pythons = os.path.join(self.root, "pythons")
        self.project = os.path.join(self.root, "project")
        self.records = [os.path.join(self.root, name) for name in ("locks", "installed", "cache")]

    def lock(self, layer: str) -> str:
        return os.path.join(self.root, "locks", f"{layer}.json")

    def installed(self, layer: str) -> str:
        return os.path.join(self.root, "installed", layer)

    def has_records(self) -> bool:
        return os.path.isdir(self.installed(""))
