# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify a file's signature against trusted keys. Needs gpgv, but no GnuPG home directory."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tempfile

BLOCK = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


def normalize(fingerprint: str) -> str:
    """Return a fingerprint in gpgv's format: upper case without spaces."""
    return re.sub(r"\s", "", fingerprint).upper()


def keyring(text: str) -> bytes:
    """Return the keys from armored text in gpgv's format, without checksums or the headers, which end with an empty
    line.

    Raise ValueError if a block is not Base64.
    """
    rings = b""
    for block in BLOCK.findall(text.replace("\r", "")):
        lines = block.partition("\n\n")[2].split()
        rings += base64.b64decode("".join(line for line in lines if not line.startswith("=")))
    return rings


def signers(status: str) -> list[str]:
    """Return the fingerprints of the keys that made valid signatures: the key's own and its primary key's."""
    fingerprints = []
    for line in status.splitlines():
        fields = line.split()
        if fields[:2] == ["[GNUPG:]", "VALIDSIG"]:
            fingerprints += [fields[2], fields[-1]]
    return fingerprints


def verify_signature(file: str, signature: str, keys: str, trusted: set[str]) -> tuple[bool, str]:
    """Return whether a file is signed by a trusted key, with a message about it.

    Args:
        file: its path.
        signature: path of its detached signature.
        keys: path of armored keys.
        trusted: fingerprints of the trusted keys, in normalize()'s format.

    Raise OSError if one of the files cannot be read, or gpgv cannot be run.
    """
    with open(keys, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    try:
        ring = keyring(text)
    except ValueError:
        ring = b""
    if not ring:
        return False, "the downloaded key file contains no keys"
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "keys.gpg")
        with open(path, "wb") as written:
            written.write(ring)
        # no AnsibleModule here; pylint: disable=ansible-bad-function
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
        return False, f"it is signed by {fingerprints[0]}, an untrusted key"
    if "NO_PUBKEY" in completed.stdout:
        return False, "it is signed by a key that is missing from the key file"
    if "BADSIG" in completed.stdout:
        return False, "the signature does not match this package"
    message = completed.stderr.strip().splitlines()[-1:] or ["no output from gpgv"]
    return False, f"the signature cannot be verified ({message[0]})"
