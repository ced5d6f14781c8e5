# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a cluster on the controller: what was requested, and the results. Private to this collection.

It is .muster/clusters/CLUSTER.json beside the inventory, readable only by its owner. Each thing is recorded before it
is requested, and its id after the answer, so that the next run notices a crash in between. The record is evidence, not
the source of truth: without it, everything except fixed addresses is found by network and name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Noted


class RecordError(Exception):
    """The record cannot be read or written. str() is one line for a person."""


class Entry(TypedDict):
    """One requested thing. id: "" until an answer gave it. asked: the time of each request. settled: the cluster was
    complete with it, so that no rollback removes it."""

    what: str
    name: str
    id: str
    asked: list[float]
    settled: bool


class Content(TypedDict):
    """The file's content. addresses: machine id by fixed address of our machines."""

    cluster: str
    provider: str
    entries: list[Entry]
    addresses: dict[str, str]


class ClusterRecord:
    """The record of one cluster; each method writes its change to the file. path None: no file."""

    def __init__(self, path: Path | None, content: Content) -> None:
        self.path = path
        self.content = content

    def intend(self, what: str, name: str, now: float) -> None:
        """Record that a thing is about to be requested. An entry with an id is an older thing that is gone by now."""
        entry = self.entry(what, name)
        if entry is None or entry["id"]:
            self._drop(what, name)
            self.content["entries"].append({"what": what, "name": name, "id": "", "asked": [now], "settled": False})
        else:
            entry["asked"].append(now)
        self._write()

    def made(self, what: str, name: str, thing_id: str) -> None:
        """Record the id of a thing that was made."""
        entry = self.entry(what, name)
        if entry is not None and entry["id"] != thing_id:
            entry["id"] = thing_id
            self._write()

    def keep(self, what: str, name: str, thing_id: str, now: float) -> None:
        """Record a thing of the cluster that stays."""
        if self.entry(what, name) is None:
            self.content["entries"].append(
                {"what": what, "name": name, "id": thing_id, "asked": [now], "settled": True}
            )
            self._write()

    def forget(self, what: str, name: str, thing_id: str = "") -> None:
        """Record that the thing with this id is gone or, without an id, was never made."""
        entry = self.entry(what, name)
        if entry is not None and entry["id"] in ("", thing_id):
            self._drop(what, name)
            self._write()

    def forget_all(self, what: str, name: str) -> None:
        """Record that the thing is gone, whatever its id, or was refused."""
        if self.entry(what, name) is not None:
            self._drop(what, name)
            self._write()

    def note_addresses(self, addresses: dict[str, str]) -> None:
        """Record fixed addresses of machines, before the machines are removed."""
        if addresses.items() - self.content["addresses"].items():
            self.content["addresses"].update(addresses)
            self._write()

    def forget_address(self, ip: str) -> None:
        """Record that an address was released, or belongs to someone else."""
        if self.content["addresses"].pop(ip, None) is not None:
            self._write()

    def settle(self, before: float | None = None) -> None:
        """Record that the cluster is complete, or that what was requested before a time must not be rolled back."""
        entries = self.content["entries"]
        kept = [one for one in entries if one["id"] or before is not None or one["what"] == "template"]
        loose = [one for one in kept if not one["settled"] and (before is None or one["asked"][-1] < before)]
        loose = [one for one in loose if one["what"] != "template"]
        for entry in loose:
            entry["settled"] = True
        if loose or len(kept) < len(entries):
            self.content["entries"] = kept
            self._write()

    def settle_one(self, what: str, name: str) -> None:
        """Record that everything that goes with a thing is done."""
        entry = self.entry(what, name)
        if entry is not None and not entry["settled"]:
            entry["settled"] = True
            self._write()

    def end(self) -> None:
        """Remove the file: nothing is left."""
        self.content["entries"], self.content["addresses"] = [], {}
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def unsettled(self, what: str) -> dict[str, str]:
        """Ids, by name, of things made since the cluster was last complete."""
        entries = [entry for entry in self.content["entries"] if entry["what"] == what]
        return {entry["name"]: entry["id"] for entry in entries if entry["id"] and not entry["settled"]}

    def noted(self) -> Noted:
        """The record's data for the planner."""
        entries = self.content["entries"]
        return {
            "ids": {f"{entry['what']} {entry['name']}": entry["id"] for entry in entries if entry["id"]},
            "asked_twice": [f"{entry['what']} {entry['name']}" for entry in entries if len(entry["asked"]) > 1],
            "addresses": dict(self.content["addresses"]),
        }

    def entry(self, what: str, name: str) -> Entry | None:
        """The entry of a thing."""
        return next((one for one in self.content["entries"] if (one["what"], one["name"]) == (what, name)), None)

    def _drop(self, what: str, name: str) -> None:
        self.content["entries"] = [one for one in self.content["entries"] if (one["what"], one["name"]) != (what, name)]

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
                os.fsync(stream.fileno())  # the record must survive a crash after the following request
            temporary.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise RecordError(
                f"the record {self.path} cannot be written: {error.strerror}. Nothing is made that is not recorded "
                "first: make room, or give another place with directory"
            ) from None


def read_record(directory: Path, cluster: str, provider: str, keep: bool = True) -> ClusterRecord:
    """The record of a cluster, empty if there is none. keep: whether changes are written to the file."""
    path = directory / f"{cluster}.json"
    empty: Content = {"cluster": cluster, "provider": provider, "entries": [], "addresses": {}}
    try:
        content = _checked(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        content = empty
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is malformed"
        raise RecordError(
            f"the record {path} cannot be read: {why}. Move it away: without it all of the cluster but fixed addresses "
            "is found by network and name"
        ) from None
    if content["provider"] != provider:
        raise RecordError(
            f"{path} is the record of a cluster {cluster} at {content['provider']}, not at {provider}. "
            "Choose another name for this one"
        )
    return ClusterRecord(path if keep else None, content)


def _checked(content: Any) -> Content:
    """Check a record's content, field by field. Raises KeyError, TypeError and ValueError."""
    return {
        "cluster": str(content["cluster"]),
        "provider": str(content["provider"]),
        "entries": [
            {
                "what": str(entry["what"]),
                "name": str(entry["name"]),
                "id": str(entry["id"]),
                "asked": [float(when) for when in entry["asked"]],
                "settled": bool(entry["settled"]),
            }
            for entry in content["entries"]
        ],
        "addresses": {str(ip): str(machine) for ip, machine in dict(content["addresses"]).items()},
    }


@contextlib.contextmanager
def locked(directory: Path, cluster: str) -> Iterator[None]:
    """Lock a cluster while it is changed: two commands at once would make it twice. Raises RecordError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / f".{cluster}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RecordError(
            f"{directory} cannot be written: {error.strerror}. The records of clusters lie there; give another place "
            "with directory"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RecordError(
            f"another command is changing {cluster} just now. Wait until it has ended, and run this again"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_record(directory: Path, cluster: str, provider: str, check: bool) -> Iterator[ClusterRecord]:
    """The record of a cluster, locked while it is changed; in check mode not locked or written. Raises RecordError."""
    with contextlib.nullcontext() if check else locked(directory, cluster):
        yield read_record(directory, cluster, provider, keep=not check)
