# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which key a file is signed with. Needs gpgv, but no GnuPG home directory.

Private to this collection. Runs on the node, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tempfile

BLOCK = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


def plain(fingerprint: str) -> str:
    """A fingerprint in gpgv's form: no blanks, upper case."""
    return re.sub(r"\s", "", fingerprint).upper()


def keyring(text: str) -> bytes:
    """The keys in armored text in gpgv's form: without headers, which end with an empty line, and checksums.

    Raises ValueError if a block is not Base64.
    """
    rings = b""
    for block in BLOCK.findall(text.replace("\r", "")):
        lines = block.partition("\n\n")[2].split()
        rings += base64.b64decode("".join(line for line in lines if not line.startswith("=")))
    return rings


def signers(status: str) -> list[str]:
    """The fingerprints of keys with valid signatures, of each key itself and its primary key."""
    found = []
    for line in status.splitlines():
        words = line.split()
        if words[:2] == ["[GNUPG:]", "VALIDSIG"]:
            found += [words[2], words[-1]]
    return found


def verdict(file: str, signature: str, keys: str, known: set[str]) -> tuple[bool, str]:
    """Whether a file is signed by a trusted key, and a message about it.

    Args:
        file: its path.
        signature: path of its detached signature.
        keys: path of armored keys.
        known: fingerprints of the trusted keys, in plain()'s form.

    Raises OSError if one of the files cannot be read, or gpgv cannot be run.
    """
    with open(keys, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    try:
        ring = keyring(text)
    except ValueError:
        ring = b""
    if not ring:
        return False, "what was fetched as its keys holds no key"
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "keys.gpg")
        with open(path, "wb") as written:
            written.write(ring)
        # No AnsibleModule here.
        # pylint: disable=ansible-bad-function
        done = subprocess.run(
            ["gpgv", "--status-fd", "1", "--keyring", path, signature, file],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    found = signers(done.stdout)
    if done.returncode == 0 and known.intersection(found):
        return True, f"signed by {found[0]}"
    if found:
        return False, f"it is signed by {found[0]}, a key that does not count"
    if "NO_PUBKEY" in done.stdout:
        return False, "it is signed by a key that is not among those fetched"
    if "BADSIG" in done.stdout:
        return False, "the signature is not of this package"
    said = done.stderr.strip().splitlines()[-1:] or ["gpgv said nothing"]
    return False, f"the signature cannot be verified ({said[0]})"
