"""Verify DIRECTORY/mount-s3.deb by mount-s3.deb.asc and KEYS; fingerprints that count come by standard input.

Prints what is wrong and ends with 1, or says by which key it is signed. Needs gpgv, and no home directory of GnuPG.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys

BLOCK = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


def keyring(text: str) -> bytes:
    """The keys of armoured text as gpgv reads them: without headers, which end with an empty line, and checksums."""
    rings = b""
    for block in BLOCK.findall(text.replace("\r", "")):
        lines = block.partition("\n\n")[2].split()
        rings += base64.b64decode("".join(line for line in lines if not line.startswith("=")))
    return rings


def signers(status: str) -> list[str]:
    """The fingerprints of the keys that signed rightly, of the key itself and of its primary key."""
    found = []
    for line in status.splitlines():
        words = line.split()
        if words[:2] == ["[GNUPG:]", "VALIDSIG"]:
            found += [words[2], words[-1]]
    return found


def verdict(directory: str, known: set[str]) -> tuple[int, str]:
    """Exit code and what to say."""
    package, signature, keys = (os.path.join(directory, name) for name in ("mount-s3.deb", "mount-s3.deb.asc", "KEYS"))
    with open(keys, encoding="utf-8", errors="replace") as stream:
        ring = keyring(stream.read())
    if not ring:
        return 1, "what was fetched as its keys holds no key"
    with open(f"{keys}.gpg", "wb") as stream:
        stream.write(ring)
    command = ["gpgv", "--status-fd", "1", "--keyring", f"{keys}.gpg", signature, package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = signers(done.stdout)
    if done.returncode == 0 and known.intersection(found):
        return 0, f"signed by {found[0]}"
    if found:
        return 1, f"it is signed by {found[0]}, a key that does not count"
    if "NO_PUBKEY" in done.stdout:
        return 1, "it is signed by a key that is not among those fetched"
    if "BADSIG" in done.stdout:
        return 1, "the signature is not of this package"
    return 1, f"the signature cannot be verified ({done.stderr.strip().splitlines()[-1:] or ['gpgv said nothing']})"


if __name__ == "__main__":
    CODE, SAID = verdict(sys.argv[1], {re.sub(r"\s", "", line).upper() for line in sys.stdin})
    print(SAID)
    sys.exit(CODE)
