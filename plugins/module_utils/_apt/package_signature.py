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


def normalize(fingerprint: str) -> str:
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
    fingerprints = []
    for line in status.splitlines():
        fields = line.split()
        if fields[:2] == ["[GNUPG:]", "VALIDSIG"]:
            fingerprints += [fields[2], fields[-1]]
    return fingerprints


def verify_signature(file: str, signature: str, keys: str, trusted: set[str]) -> tuple[bool, str]:
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
        completed = subprocess.run(
            ["gpgv", "--status-fd", "1", "--keyring", path, signature, file],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    fingerprints = signers(completed.stdout)
    if completed.returncode == 0 and trusted.intersection(fingerprints):
        return True, f"signed by {fingerprints[0]}"
    if fingerprints:
        return False, f"it is signed by {fingerprints[0]}, a key that does not count"
    if "NO_PUBKEY" in completed.stdout:
        return False, "it is signed by a key that is not among those fetched"
    if "BADSIG" in completed.stdout:
        return False, "the signature is not of this package"
    message = completed.stderr.strip().splitlines()[-1:] or ["gpgv said nothing"]
    return False, f"the signature cannot be verified ({message[0]})"
