# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MUNGE key, with which the nodes of a Slurm cluster authenticate each other. Needs root.

Everybody who has the key can act as any user on all nodes, root included. It is read and written with the rights of
munge's user, to whom its directory belongs.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os

from ansible_collections.muster.training.plugins.module_utils._files import user_files

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

PATH = "/etc/munge/munge.key"
USER = "munge"
MODE = 0o400
MIN_BYTES = 32  # minimum length that munged accepts


def read_key() -> bytes:
    """Return the node's key; b"" if there is none. Raise UserFileError if it cannot be read."""
    try:
        user = user_files.get_user(USER)
    except user_files.UserFileError:  # the package is not installed
        return b""
    text = user_files.run_as_user(user, lambda: {"text": user_files.read(PATH) or ""})["text"]
    return text.encode("utf-8", "surrogateescape")


def fingerprint() -> str:
    """Return a hash that identifies the node's key, or "" if there is no key or it cannot be read."""
    try:
        key = read_key()
    except user_files.UserFileError:
        return ""
    return hashlib.sha256(b"muster" + key).hexdigest()[:32] if key else ""


def write_key(key: bytes, check: bool) -> bool:
    """Ensure that the node has this key; return whether that was, or would be, a change."""
    try:
        user = user_files.get_user(USER)
    except user_files.UserFileError:
        if check:  # the package is not installed yet
            return True
        raise user_files.UserFileError(
            "the munge package is not installed. Install it: sudo apt-get install munge"
        ) from None
    text = key.decode("utf-8", "surrogateescape")
    write = functools.partial(user_files.ensure_file, PATH, MODE, check, text, "", "")

    def write_without_text() -> Data:
        return {"changed": write()["changed"]}

    return bool(user_files.run_as_user(user, write_without_text)["changed"])


def main(request: Data) -> Data:
    """Return the node's key in Base64, or install the key given in the request.

    Args:
        request: key (in Base64; "" to read), check (whether to write nothing).
    """
    if os.geteuid() != 0:
        return {"error": "this needs root. Set become: true"}
    try:
        if not request["key"]:
            key = read_key()
            if len(key) < MIN_BYTES:
                return {"error": f"{PATH} is missing or too short. Create it: sudo mungekey --create --force"}
            return {"key": base64.b64encode(key).decode()}
        return {"changed": write_key(base64.b64decode(request["key"]), request["check"])}
    except user_files.UserFileError as error:
        return {"error": f"{error}."}
