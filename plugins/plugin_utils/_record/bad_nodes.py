# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of bad nodes: bad-nodes.json next to the inventory, which recognizes a machine under any name."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json, write_atomically
from ansible_collections.muster.training.plugins.plugin_utils._record.machine_identity import (
    parse_identity,
    parse_uuids,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

FILE = "bad-nodes.json"
MAX_BYTES = 16 * 2**20  # MAX_ENTRIES entries with MAX_GPUS GPUs take less than this
MAX_ENTRIES = 1000  # the newest are kept
MAX_REASON = 300
TEXTS = ("node", "reason", "run", "serial", "asset", "machine_id")
LISTS = ("gpus", "failed_gpus")
NUMBERS = ("serial", "asset", "machine_id")


class BadNode(TypedDict):
    """A machine that must not be used."""

    node: str  # the node's name in the inventory when it was recorded
    reason: str
    time: float  # seconds since 1970
    run: str  # the run in which it failed; "" if a person recorded it
    serial: str  # "" if unknown, like asset and machine_id
    asset: str
    machine_id: str
    gpus: list[str]  # UUIDs of its GPUs when it was recorded
    failed_gpus: list[str]  # UUIDs of the GPUs that failed, if known


class BadNodesError(ValueError):
    """The file cannot be used; the message gives the reason and a remedy."""


def file_of(task_vars: Mapping[str, Any], group: str) -> Path:
    """Return the path of the file: next to the inventory of the first node."""
    members = task_vars["groups"].get(group, [])
    host = task_vars["hostvars"][members[0]] if members else {}
    return Path(host.get("inventory_dir") or task_vars["playbook_dir"]) / FILE


def exclude_shared_numbers(identities: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the identities without numbers that several nodes share, such as containers on one machine."""
    counts = Counter((name, identity.get(name)) for identity in identities.values() for name in NUMBERS)
    return {
        node: {key: "" if key in NUMBERS and counts[key, value] > 1 else value for key, value in identity.items()}
        for node, identity in identities.items()
    }


def exclude_shared_gpus(identities: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the identities without GPUs that several nodes share: a node could report another's GPUs as its own."""
    counts = Counter(uuid for identity in identities.values() for uuid in set(identity.get("gpus") or []))
    return {
        node: {**identity, "gpus": [uuid for uuid in identity.get("gpus") or [] if counts[uuid] == 1]}
        for node, identity in identities.items()
    }


def make_entry(node: str, reason: str, run: str, identity: Mapping[str, Any], blamed: list[str]) -> BadNode:
    """Return an entry. identity: the result of summarize_identity(), or {} if unknown."""
    texts = {name: "" for name in NUMBERS} | parse_identity(identity)
    return {
        "node": node,
        "reason": single_line(reason, MAX_REASON),
        "time": time.time(),
        "run": run,
        "serial": texts["serial"],
        "asset": texts["asset"],
        "machine_id": texts["machine_id"],
        "gpus": parse_uuids(identity.get("gpus") or []),
        "failed_gpus": parse_uuids(blamed),
    }


def validate_entry(value: Any) -> BadNode | None:
    """Return an entry from the file, or None if it names no node.

    Fields of a wrong type are replaced with empty values.
    """
    if not isinstance(value, dict) or not isinstance(value.get("node"), str) or not value["node"]:
        return None
    texts = {name: value[name] if isinstance(value.get(name), str) else "" for name in TEXTS}
    lists = {
        name: [text for text in value[name] if isinstance(text, str)] if isinstance(value.get(name), list) else []
        for name in LISTS
    }
    moment = value.get("time")
    is_time = isinstance(moment, (int, float)) and not isinstance(moment, bool)
    return BadNode(**texts, **lists, time=float(moment) if is_time else 0.0)  # type: ignore[typeddict-item]


def read_entries(path: Path) -> list[BadNode]:
    """Return the entries in the file, or [] if it does not exist.

    Raises:
        BadNodesError: the file cannot be read. Ignoring it would use machines that a user has excluded.
    """
    if not os.path.lexists(path):
        return []
    value = read_json(str(path), MAX_BYTES)
    listed = value.get("nodes") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise BadNodesError(f"{path} cannot be read: it is not a list of bad nodes. Correct it or remove it: rm {path}")
    entries = map(validate_entry, listed)
    return [entry for entry in entries if entry is not None][-MAX_ENTRIES:]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Prevent other commands from changing the file until the block ends."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def change_entries(path: Path, change: Callable[[list[BadNode]], list[BadNode]]) -> list[BadNode]:
    """Replace the file's entries with the result of a function that is called with them, and return the result.

    Raises:
        BadNodesError: the file cannot be read or written.
    """
    try:
        with locked(path):
            entries = change(read_entries(path))[-MAX_ENTRIES:]
            write_atomically(str(path), json.dumps({"nodes": entries}, indent=1, sort_keys=True) + "\n", 0o644)
    except OSError as error:
        raise BadNodesError(f"cannot write {path}: {error.strerror}. Make its directory writable") from error
    return entries


def add_entry(entries: list[BadNode], new: BadNode) -> list[BadNode]:
    """Return the entries with a new one, which replaces an earlier entry for the same machine."""
    return [entry for entry in entries if not is_same_machine(entry, new)] + [new]


def is_same_machine(entry: BadNode, other: BadNode) -> bool:
    """Return whether two entries refer to the same machine."""
    return matches(entry, other["node"], other) and matches(other, entry["node"], entry)


def matches(entry: BadNode, node: str, identity: Mapping[str, Any]) -> bool:
    """Return whether a node is the machine that an entry describes.

    GPUs decide if they are known on both sides: a virtual machine may have moved to another host with its disk and its
    machine id, and a GPU may have moved to another machine. Otherwise a serial number decides, then the machine id. The
    name decides only if nothing else was recorded.
    """
    gpus = set(identity.get("gpus") or [])
    if set(entry["failed_gpus"]) & gpus:
        return True
    if entry["gpus"] and gpus:
        return bool(set(entry["gpus"]) & gpus)
    for name in ("serial", "asset", "machine_id"):
        if entry[name] and identity.get(name):
            return bool(entry[name] == identity[name])
    has_identity = entry["gpus"] or any(entry[name] for name in ("serial", "asset", "machine_id"))
    return not has_identity and entry["node"] == node


def describe_entry(entry: BadNode) -> str:
    """Return why, when and in which run a machine was recorded."""
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["time"]))
    run = f" in run {single_line(entry['run'], 80)}" if entry["run"] else ""
    return f"{single_line(entry['reason'], MAX_REASON)} ({day}{run})"


def describe_machine(entry: BadNode) -> str:
    """Return the identity of an entry's machine for display in a table."""
    uuids = entry["failed_gpus"] or entry["gpus"]
    candidates = (*uuids[:1], entry["serial"], entry["asset"], entry["machine_id"])
    return single_line(next(filter(None, candidates), "its name"), 60)
