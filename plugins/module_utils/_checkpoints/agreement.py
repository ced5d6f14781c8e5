# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the checkpoint that the nodes resume from in the next attempt. Pure functions over each node's listing."""

from __future__ import annotations

import collections
import hashlib
import json
import posixpath

from ansible_collections.muster.training.plugins.module_utils._checkpoints.choice import merge_parts, missing_parts
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import LATEST, sort_newest_first
from ansible_collections.muster.training.plugins.module_utils._checkpoints.registry import JUDGES
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    TIME,
    Between,
    Maybe,
    conforms,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Any, Collection, Mapping, Sequence, TypeVar

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint

    Value = TypeVar("Value")

MAX_PATH = 4096  # characters
# characters of a checkpoint's description in one lifeline message, which has at most 64 KiB
MAX_DESCRIPTION = 48 * 1024
MAX_NAMES = 32 * 1024  # characters of part names in one request, which is smaller than 64 KiB
SIZE = range(2**62)  # bytes
NUMBER = range(-(2**62), 2**62)
CHECKPOINT = {
    "name": str,
    "path": str,
    "format": tuple(JUDGES),
    "step": Maybe(range(10**16)),
    "unit": ("step", "epoch"),
    "saved": TIME,
    "seconds": Between(0, 1e12),  # the job may have set its files' modification times itself
    "size": SIZE,
    "parts": dict,
    "damaged": dict,
    "required": dict,
    "recorded": dict,
    "reason": str,
}
# checkpoint: None if there is none. missing: the nodes that lack parts of it, each with {part: a node that has it}.
# torn: newer checkpoints that cannot be used, newest first.
Agreement = collections.namedtuple("Agreement", "checkpoint missing torn")


def is_checkpoint(value: Any) -> bool:
    """Return whether a node's description of a checkpoint has the right types."""
    return conforms(value, CHECKPOINT) and (
        all(conforms(size, SIZE) for name in ("parts", "required") for size in value[name].values())
        and all(isinstance(reason, str) for reason in value["damaged"].values())
        and all(
            isinstance(numbers, dict) and all(conforms(number, NUMBER) for number in numbers.values())
            for numbers in value["recorded"].values()
        )
    )


def is_listed_checkpoint(value: Any) -> bool:
    """Return whether another node's message describes a checkpoint below its checkpoint directory."""
    return (
        is_checkpoint(value)
        and is_relative(value["name"])
        and isinstance(value.get("complete"), bool)
        and isinstance(value.get("fixed_world"), bool)
        and conforms(value.get("world_size"), Maybe(range(10**6)))
        and all(is_part(path) for path in value["parts"])
        and (LATEST not in value["parts"] or value["format"] == "deepspeed")
    )


def is_relative(path: str) -> bool:
    """Return whether a path is normalized and relative, and does not lead above its base directory."""
    is_normal = bool(path) and len(path) <= MAX_PATH and "\0" not in path and posixpath.normpath(path) == path
    return is_normal and not path.startswith("/") and path.split("/")[0] != ".."


def is_copyable(name: str) -> bool:
    """Return whether a checkpoint with this name may be copied in parts, unlike the directory of all checkpoints."""
    return is_relative(name) and name != "."


def is_part(path: str) -> bool:
    """Return whether a path can be a part of a checkpoint; "" is the checkpoint itself if it is a file."""
    return path in ("", LATEST) or (is_relative(path) and path != ".")


def describe_parts(names: Collection[str]) -> dict[str, Any]:
    """Return the names of the parts for a copy request, or a hash of the names if there are too many."""
    parts = sorted(names)
    return {"parts": parts} if len(json.dumps(parts)) <= MAX_NAMES else {"parts": hash_names(parts)}


def hash_names(names: Collection[str]) -> str:
    """Return the hash of a set of names."""
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()


def select_agreed(wanted: Mapping[str, Value], agreed: Any) -> dict[str, Value]:
    """Return the parts that were agreed on; agreed: a result of describe_parts().

    Raise ValueError if only a hash was agreed on and the parts have a different hash.
    """
    if isinstance(agreed, list):
        names = {part for part in agreed if isinstance(part, str)}
        return {part: value for part, value in wanted.items() if part in names}
    if agreed != hash_names(wanted):
        raise ValueError("the files on the other nodes differ from those that the nodes agreed on")
    return dict(wanted)


def shorten(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint that fits on one line of the lifeline: without its parts if there are too many."""
    if len(json.dumps(checkpoint)) <= MAX_DESCRIPTION:
        return checkpoint
    return {
        **checkpoint,
        "parts": {},
        "damaged": {},
        "required": {},
        "recorded": {},
        "reason": checkpoint["reason"][:500],
    }


def share_stores(
    listings: Mapping[str, Sequence[Checkpoint]], stores: Mapping[str, str]
) -> dict[str, list[Checkpoint]]:
    """Return the nodes' listings, using one listing for all nodes that read the same directory.

    stores: identifier of each node's directory, or "" if unknown. A client of a file server may see a new file late.
    """
    shared: dict[str, dict[str, Checkpoint]] = {}
    for node, listing in listings.items():
        known = shared.setdefault(stores.get(node) or f"node {node}", {})
        for checkpoint in listing:
            if checkpoint["complete"] or checkpoint["name"] not in known:
                known[checkpoint["name"]] = checkpoint
    return {node: list(shared[stores.get(node) or f"node {node}"].values()) for node in listings}


def can_load(checkpoint: Checkpoint, world_size: int) -> bool:
    """Return whether this number of ranks can load a checkpoint."""
    return not checkpoint["fixed_world"] or checkpoint["world_size"] == world_size


def agree_on_checkpoint(
    listings: Mapping[str, Sequence[Checkpoint]],
    members: Sequence[str],
    world_size: int,
    rejected: Collection[str] = (),
) -> Agreement:
    """Return the newest checkpoint that all members of an attempt can load once they have the missing parts.

    listings: those of all nodes that may have parts. rejected: names of checkpoints whose parts could not be copied.
    """
    copies: dict[str, dict[str, Checkpoint]] = {}
    for node, listing in listings.items():
        for checkpoint in listing:
            copies.setdefault(checkpoint["name"], {})[node] = checkpoint
    newest = sort_newest_first([newest_copy(list(nodes.values())) for nodes in copies.values()])
    torn: list[Checkpoint] = []
    for candidate in newest:
        name = candidate["name"]
        nodes = copies[name]
        local = [nodes[member] for member in members if member in nodes]
        if len(local) == len(members) and all(copy["complete"] and can_load(copy, world_size) for copy in local):
            return Agreement(local[0], {}, torn)
        is_known = is_copyable(name) and all(copy["parts"] for copy in nodes.values())
        union = merge_parts(nodes) if is_known else unknown_parts(candidate)
        if union["complete"] and not can_load(union, world_size):
            continue
        if union["complete"] and name not in rejected:
            missing = missing_parts(union, nodes, members)
            return Agreement(union, missing, torn)
        torn.append(union)
    return Agreement(None, {}, torn)


def newest_copy(copies: list[Checkpoint]) -> Checkpoint:
    """Return the most recently saved copy of a checkpoint."""
    return max(copies, key=lambda copy: copy["saved"])


def unknown_parts(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint marked incomplete: its parts are not on all nodes, and there are too many to compare.

    Or it is the directory of checkpoints itself, whose files belong to no other node.
    """
    cause = "it has too many files to compare" if is_copyable(checkpoint["name"]) else "it is the whole directory"
    reason = checkpoint["reason"] or f"not every node has it, and {cause}"
    return {**checkpoint, "complete": False, "reason": reason}
