# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An SSH certificate authority in a directory: its key, a record of each node's certificates, and revoked certificates.

    ca, ca.pub            key pair
    nodes/NAME.json       certificates of a node by id, and the ids of its current certificates
    revoked, revoked.krl  ids of revoked certificates, as text and in the format of sshd and ssh
    lock                  held while any of these is changed

An id is derived from the node, the key and the valid names. A renewed certificate keeps its id, so that one entry
revokes all renewals; a new key, another machine with the same name, or other names give a new id.

The key may have a passphrase (ssh-keygen -p -f ca). It is then used through ssh-agent; its owner must add it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Dict

SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60}
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
BACKDATED = 86400
"""Seconds by which a certificate's start is backdated, since the nodes' clocks may be slow."""

Record = Dict[str, Any]
"""A node's {"current": [id, ...], "certificates": {id: {"kind", "names", "key", "authority", "certificate", ...}}}"""


class AuthorityError(Exception):
    """The authority cannot be used or changed; the message explains why, with a remedy."""


def parse_duration(duration: str) -> int:
    """Parse a duration such as 52w, 1d12h or 90m, and return it in seconds. Raise AuthorityError if it is invalid."""
    if not re.fullmatch(r"([0-9]{1,6}[wdhm])+", duration):
        raise AuthorityError(f"{duration!r} is not a duration. Use numbers with w, d, h or m, such as 52w or 1d12h.")
    return sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([wdhm])", duration))


def desired_certificates(
    node: Mapping[str, Any], authority: str, source_addresses: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the desired contents of a node's certificates, by id. In check mode, skip keys that do not exist yet.

    A user certificate is valid for one user, allows no forwarding, and with `source_addresses` only logins from these.

    Raises:
        AuthorityError: If the node's user is not a plain user name. ssh-keygen would read a comma as a second name.
    """
    if not USER_NAME.fullmatch(node["user"]):
        raise AuthorityError(
            f"{node['name']}: {node['user'][:80]!r} is not a user name. Set ssh_mesh_user to the user who runs "
            "the jobs."
        )
    restrictions = ["clear", "permit-pty"]
    if source_addresses:
        restrictions.append(f"source-address={','.join(sorted(set(source_addresses)))}")
    desired = {}
    for kind, names in (("user", [node["user"]]), ("host", node["names"])):
        key_fields = node[f"{kind}_key"].split()[:2]
        if key_fields:
            principals = sorted(set(names))
            number = hashlib.sha256("\n".join([key_fields[-1], *principals]).encode()).hexdigest()[:16]
            desired[f"{node['name']}/{kind}-{number}"] = {
                "kind": kind,
                "names": principals,
                "key": " ".join(key_fields),
                "authority": authority,
                "options": restrictions if kind == "user" else [],
            }
    return desired


def is_valid(recorded: Mapping[str, Any] | None, desired: Mapping[str, Any], until: float) -> bool:
    """Return whether a recorded certificate has the desired content and is valid at `until`, in seconds since 1970."""
    return (
        recorded is not None
        and recorded["valid_until"] > until
        and all(recorded.get(key) == desired[key] for key in desired)
    )


def revoked_ids(records: Mapping[str, Record], members: Iterable[str]) -> list[str]:
    """Return certificates of nodes that are no longer members, and of keys and names that a member no longer has."""
    members = set(members)
    return sorted(
        certificate_id
        for node, record in records.items()
        for certificate_id in record["certificates"]
        if node not in members or certificate_id not in record["current"]
    )


def summary(records: Mapping[str, Record], revoked: Iterable[str]) -> str:
    """Format the record with one line per certificate."""
    certificates = [item for record in records.values() for item in sorted(record["certificates"].items())]
    lines = [
        f"{certificate_id}: {', '.join(entry['names'])}, "
        f"valid for {(entry['valid_until'] - entry['signed']) / 86400:.1f} days\n"
        for certificate_id, entry in certificates
    ]
    return "".join([*lines, *(f"{certificate_id}: revoked\n" for certificate_id in revoked)])


def read_records(directory: Path) -> dict[str, Record]:
    """Return the record of each node, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("nodes/*.json"))}


def public_key(directory: Path) -> str:
    """Return the authority's public key, or "" if it does not exist yet."""
    path = directory / "ca.pub"
    return " ".join(path.read_text().split()[:2]) if path.exists() and path.with_suffix("").exists() else ""


def create_authority(directory: Path) -> str:
    """Create the key pair and return the public key."""
    for name in ("ca", "ca.pub"):  # half a key pair is useless
        (directory / name).unlink(missing_ok=True)
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", "muster", "-f", str(directory / "ca"))
    return public_key(directory)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock for changing the authority; other processes wait. The directory must exist."""
    with open(directory / "lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def signing_options(directory: Path) -> list[str]:
    """Return ssh-keygen's options for signing: with the key itself or, if it has a passphrase, through ssh-agent.

    Raise AuthorityError if ssh-agent does not have the key.
    """
    path = directory / "ca"
    if run("ssh-keygen", "-y", "-P", "", "-f", str(path)).returncode == 0:
        return ["-s", str(path)]
    agent = run("ssh-add", "-L")
    if public_key(directory) not in agent.stdout:
        message = f" ({(agent.stderr or agent.stdout).strip()})" if agent.returncode else ""
        raise AuthorityError(
            f"The authority's key {path} cannot be read without a passphrase, and ssh-agent does not have it{message}. "
            f"Add it to ssh-agent: ssh-add {path}"
        )
    return ["-U", "-s", f"{path}.pub"]


def sign(
    directory: Path, certificate_id: str, desired: Mapping[str, Any], valid_for: int, options: Sequence[str]
) -> str:
    """Return a certificate, valid for `valid_for` seconds from now.

    Args:
        options: see signing_options().
    """
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        Path(scratch, "key.pub").write_text(f"{desired['key']}\n")
        kind = ["-h"] if desired["kind"] == "host" else []
        restrictions = [argument for option in desired["options"] for argument in ("-O", option)]
        names = ",".join(desired["names"])
        period = f"-{BACKDATED}s:+{valid_for}s"
        ssh_keygen(
            "-q", *options, *kind, *restrictions, "-I", certificate_id, "-n", names, "-V", period, f"{scratch}/key.pub"
        )
        return Path(scratch, "key-cert.pub").read_text()


def write_revoked(directory: Path, revoked: Iterable[str]) -> None:
    """Write the list of revoked certificates, first for ssh and sshd, then as text."""
    text = "".join(f"id: {certificate_id}\n" for certificate_id in revoked)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        Path(scratch, "list").write_text(text)
        ssh_keygen("-q", "-k", "-f", f"{scratch}/krl", "-s", str(directory / "ca.pub"), f"{scratch}/list")
        os.replace(f"{scratch}/krl", directory / "revoked.krl")
    write(directory / "revoked", text)


def read_revoked(directory: Path) -> list[str]:
    """Return the ids in the list of revoked certificates."""
    path = directory / "revoked"
    return [line[4:] for line in path.read_text().splitlines()] if path.exists() else []


def write(path: Path, text: str) -> None:
    """Replace a file atomically; only its owner can read it."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(name, path)


def ssh_keygen(*arguments: str) -> None:
    """Run ssh-keygen without prompts. Raise AuthorityError if it fails."""
    completed = run("ssh-keygen", *arguments)
    if completed.returncode:
        raise AuthorityError(
            f"`ssh-keygen {' '.join(arguments)}` failed: {(completed.stderr or completed.stdout).strip()}"
        )


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run an OpenSSH program, and return its result."""
    try:
        # pylint: disable=ansible-bad-function
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise AuthorityError(f"{argv[0]} is missing on this machine. Install openssh-client.") from error
