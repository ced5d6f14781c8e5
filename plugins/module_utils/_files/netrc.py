# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Set one entry in a user's ~/.netrc and keep the others."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._files import user_files

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._files.user_files import Data


def set_entry(text: str, machine: str, login: str, password: str) -> str:
    """Return a netrc text with this entry, which replaces any entry for the same machine. Keep macros and comments."""
    new_entry = f"machine {machine}\n  login {login}\n  password {password}\n"
    lines = text.splitlines(keepends=True)
    start = end = len(lines)
    for number, line in enumerate(lines):
        fields = line.split()
        if fields[:2] == ["machine", machine]:
            start = number
            following = (
                index
                for index in range(number + 1, len(lines))
                if re.match(r"\s*(machine|default|macdef|#)", lines[index])
            )
            end = next(following, len(lines))
            break
        if fields[:1] == ["default"]:  # the remaining entries are never read
            start = end = number
            break
    before = "".join(lines[:start])
    return before + ("" if not before or before.endswith("\n") else "\n") + new_entry + "".join(lines[end:])


def ensure_entry(path: str, machine: str, login: str, password: str, check: bool) -> Data:
    """Ensure the entry in a file that only its owner can read; return only {"changed"}, because the text contains
    secrets.

    Raise UserFileError if the file cannot be read or written.
    """
    content = set_entry(user_files.read(path) or "", machine, login, password)
    return {"changed": user_files.ensure_file(path, 0o600, check, content, "", "")["changed"]}
