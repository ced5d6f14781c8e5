# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's journal on the controller, which records requested resources and the results.

It is .muster/clusters/CLUSTER.json beside the inventory, readable only by its owner. Each resource is recorded before
it is requested, and its id after the reply, so that the next command notices a crash in between. The journal is
evidence, not the source of truth: without it, everything except fixed addresses is found by network and name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import JournalNotes


class JournalError(Exception):
    """The journal cannot be read or written. str() is a one-line message for the user."""


class JournalEntry(TypedDict):
    """A requested resource."""

    kind: str
    name: str
    id: str  # "" until a reply contained it
    requested_at: list[float]  # times at which requests were made
    settled: bool  # part of a complete cluster, so no rollback removes it


class JournalContent(TypedDict):
    """The file's contents. addresses: machine id for each fixed address of the cluster's machines."""

    cluster: str
    provider: str
    entries: list[JournalEntry]
    addresses: dict[str, str]


class ClusterJournal:
    """The journal of one cluster. Each method writes its change to the file, unless path is None."""

    def __init__(self, path: Path | None, content: JournalContent) -> None:
        self.path = path
        self.content = content

    def record_request(self, what: str, name: str, now: float) -> None:
        """Record that a resource is about to be requested. An entry with an id is for an older, removed resource."""
        entry = self.find_entry(what, name)
        if entry is None or entry["id"]:
            self._drop(what, name)
            self.content["entries"].append(
                {"kind": what, "name": name, "id": "", "requested_at": [now], "settled": False}
            )
        else:
            entry["requested_at"].append(now)
        self._write()

    def record_created(self, what: str, name: str, resource_id: str) -> None:
        """Record the id of a newly created resource."""
        entry = self.find_entry(what, name)
        if entry is not None and entry["id"] != resource_id:
            entry["id"] = resource_id
            self._write()

    def record_existing(self, what: str, name: str, resource_id: str, now: float) -> None:
        """Record an existing cluster resource as settled."""
        if self.find_entry(what, name) is None:
            self.content["entries"].append(
                {"kind": what, "name": name, "id": resource_id, "requested_at": [now], "settled": True}
            )
            self._write()

    def forget(self, what: str, name: str, resource_id: str = "") -> None:
        """Record that the resource with this id was removed or, if there is no id, was never created."""
        entry = self.find_entry(what, name)
        if entry is not None and entry["id"] in ("", resource_id):
            self._drop(what, name)
            self._write()

    def forget_any(self, what: str, name: str) -> None:
        """Record that the resource was removed, whatever its id, or that its creation was rejected."""
        if self.find_entry(what, name) is not None:
            self._drop(what, name)
            self._write()

    def record_addresses(self, addresses: dict[str, str]) -> None:
        """Record the machines' fixed addresses before the machines are removed."""
        if addresses.items() - self.content["addresses"].items():
            self.content["addresses"].update(addresses)
            self._write()

    def forget_address(self, ip: str) -> None:
        """Record that an address was released, or belongs to someone else."""
        if self.content["addresses"].pop(ip, None) is not None:
            self._write()

    def settle(self, before: float | None = None) -> None:
        """Record that the cluster is complete, or that resources requested before a given time must not be rolled
        back.
        """
        entries = self.content["entries"]
        remaining = [entry for entry in entries if entry["id"] or before is not None or entry["kind"] == "template"]
        unsettled = [
            entry
            for entry in remaining
            if not entry["settled"] and (before is None or entry["requested_at"][-1] < before)
        ]
        unsettled = [entry for entry in unsettled if entry["kind"] != "template"]
        for entry in unsettled:
            entry["settled"] = True
        if unsettled or len(remaining) < len(entries):
            self.content["entries"] = remaining
            self._write()

    def settle_entry(self, what: str, name: str) -> None:
        """Record that a resource and everything that depends on it are complete."""
        entry = self.find_entry(what, name)
        if entry is not None and not entry["settled"]:
            entry["settled"] = True
            self._write()

    def delete(self) -> None:
        """Delete the file, because no resource remains."""
        self.content["entries"], self.content["addresses"] = [], {}
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def unsettled_ids(self, what: str) -> dict[str, str]:
        """Return the ids, by name, of resources created since the cluster was last complete."""
        entries = [entry for entry in self.content["entries"] if entry["kind"] == what]
        return {entry["name"]: entry["id"] for entry in entries if entry["id"] and not entry["settled"]}

    def notes(self) -> JournalNotes:
        """Return the journal in the planner's form."""
        entries = self.content["entries"]
        return {
            "ids": {f"{entry['kind']} {entry['name']}": entry["id"] for entry in entries if entry["id"]},
            "repeated": [f"{entry['kind']} {entry['name']}" for entry in entries if len(entry["requested_at"]) > 1],
            "addresses": dict(self.content["addresses"]),
        }

    def find_entry(self, what: str, name: str) -> JournalEntry | None:
        """Return a resource's journal entry, or None."""
        return next(
            (entry for entry in self.content["entries"] if (entry["kind"], entry["name"]) == (what, name)), None
        )

    def _drop(self, what: str, name: str) -> None:
        self.content["entries"] = [
            entry for entry in self.content["entries"] if (entry["kind"], entry["name"]) != (what, name)
        ]

    def _write(self) -> None:
        if self.path is None:
            return
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(self.content, stream, indent=1, sort_keys=True)
                stream.write("\n")
                stream.flush()
                os.fsync(stream.fileno())  # the journal must survive a crash that happens after the following request
            temporary.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise JournalError(
                f"cannot write the journal {self.path}: {error.strerror}. Nothing is created without a journal "
                "entry: free up some space, or make its directory writable"
            ) from None


def new_journal(cluster: str, provider: str, path: Path | None = None) -> ClusterJournal:
    """Return an empty journal."""
    return ClusterJournal(path, {"cluster": cluster, "provider": provider, "entries": [], "addresses": {}})


def read_journal(directory: Path, cluster: str, provider: str, writable: bool = True) -> ClusterJournal:
    """Return a cluster's journal, empty if it has none. writable: whether changes are written to the file."""
    path = directory / f"{cluster}.json"
    try:
        content = _validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return new_journal(cluster, provider, path if writable else None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is malformed"
        raise JournalError(
            f"cannot read the journal {path}: {reason}. Rename the file and run the command again: without a journal, "
            "the cluster's resources are found by network and name, except the static IP addresses of machines that no "
            "longer exist"
        ) from None
    if content["provider"] != provider:
        raise JournalError(
            f"{path} is the journal of a cluster {cluster} on {content['provider']}, not on {provider}. Choose "
            "another name for this cluster"
        )
    return ClusterJournal(path if writable else None, content)


def _validate(content: Any) -> JournalContent:
    """Return a journal's contents with each field converted to its type. Raise KeyError, TypeError or ValueError."""
    return {
        "cluster": str(content["cluster"]),
        "provider": str(content["provider"]),
        "entries": [
            {
                "kind": str(entry["kind"]),
                "name": str(entry["name"]),
                "id": str(entry["id"]),
                "requested_at": [float(time) for time in entry["requested_at"]],
                "settled": bool(entry["settled"]),
            }
            for entry in content["entries"]
        ],
        "addresses": {str(ip): str(machine) for ip, machine in dict(content["addresses"]).items()},
    }


@contextlib.contextmanager
def cluster_lock(directory: Path, cluster: str) -> Iterator[None]:
    """Lock a cluster while it is being changed: two simultaneous commands would create it twice. Raise JournalError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / f".{cluster}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise JournalError(
            f"cannot write to {directory}: {error.strerror}. The journals of clusters are stored in it; make it "
            "writable"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise JournalError(
            f"another command is changing {cluster}. Wait for it to finish, then run this command again"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_journal(directory: Path, cluster: str, provider: str, check: bool) -> Iterator[ClusterJournal]:
    """Lock a cluster and yield its journal; in check mode, do not lock the cluster or write. Raise JournalError."""
    with contextlib.nullcontext() if check else cluster_lock(directory, cluster):
        yield read_journal(directory, cluster, provider, writable=not check)
