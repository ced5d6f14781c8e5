# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the user's public SSH key from a setting that contains the key or the path of a key file."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

PUBLIC_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|(?:sk-)?ecdsa-[\w@.-]+|sk-ssh-[\w@.-]+) (AAAA[0-9A-Za-z+/]+={0,3})(?: .*)?"
)


def read_public_key(key_or_path: str, alternative: str = "") -> str:
    """Return the public key, read from a file if the setting is a path. Raise PlanRefusedError if it is unusable.

    alternative: an alternative to creating a key, as the end of a sentence.
    """
    if key_or_path.startswith(("ssh-", "ecdsa-", "sk-", "-----")):
        return parse_public_key(key_or_path)
    path = Path(key_or_path).expanduser()
    try:
        return parse_public_key(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise PlanRefusedError(
            f"cannot read the public key {single_line(path, 200)}: {reason}. Create a key pair with `ssh-keygen "
            f"-t ed25519`{alternative}"
        ) from None


def parse_public_key(text: str) -> str:
    """Return the key without its comment. text: a line from a file such as id_ed25519.pub. Raise PlanRefusedError."""
    if "PRIVATE KEY" in text:
        raise PlanRefusedError("ssh_public_key is a private key. Set it to the public key, from the .pub file")
    match = PUBLIC_KEY.fullmatch(text.strip())
    if not match:
        raise PlanRefusedError(
            "ssh_public_key is not an SSH public key. Set it to the content of a file such as "
            "~/.ssh/id_ed25519.pub, or to the path of that file"
        )
    return f"{match[1]} {match[2]}"
