# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""latest.json: the list of a run's checkpoints in S3."""

from __future__ import annotations

import itertools
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.local import LocalCheckpoint


def add_entry(manifest: dict[str, Any], entry: dict[str, Any], versions: int) -> dict[str, Any]:
    """Return the manifest with one checkpoint added, and with versions of it that are too old removed.

    The newest checkpoint comes first. Of several with the same name, the last copied is the newest.
    """
    other_entries = remove_entry(manifest, entry)["checkpoints"]
    newer = itertools.takewhile(
        lambda other: other["name"] != entry["name"] and other["stamp"] > entry["stamp"], other_entries
    )
    position = len(list(newer))
    entries: list[dict[str, Any]] = []
    for candidate in [*other_entries[:position], entry, *other_entries[position:]]:
        if sum(kept["name"] == candidate["name"] for kept in entries) < versions:
            entries.append(candidate)
    return {**manifest, "checkpoints": entries}


def remove_entry(manifest: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest without one version of a checkpoint."""
    version = (entry["name"], entry["stamp"])
    entries = [other for other in manifest["checkpoints"] if (other["name"], other["stamp"]) != version]
    return {**manifest, "checkpoints": entries}


def find_entry(manifest: dict[str, Any], checkpoint: LocalCheckpoint) -> dict[str, Any] | None:
    """Return the manifest's entry for a checkpoint if all files of this version have been copied, or None otherwise."""
    version, sizes = (checkpoint.name, checkpoint.stamp), {file.path: file.size for file in checkpoint.files}
    for entry in manifest["checkpoints"]:
        copied = {file["path"]: file["size"] for file in entry["files"]}
        if (entry["name"], entry["stamp"]) == version and copied == sizes:
            match: dict[str, Any] = entry
            return match
    return None


def is_copied(manifest: dict[str, Any], checkpoint: LocalCheckpoint) -> bool:
    """Return whether this version of a checkpoint has been copied."""
    return find_entry(manifest, checkpoint) is not None
