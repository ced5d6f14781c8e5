# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the checkpoint that all nodes can resume from: pure functions over the nodes' lists of checkpoints."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import sort_newest_first
from ansible_collections.muster.training.plugins.module_utils._checkpoints.formats.transformers import RANDOM, RNG
from ansible_collections.muster.training.plugins.module_utils._checkpoints.judge import judge

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Mapping, Sequence

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint, Choice


def merge_parts(copies: Mapping[str, Checkpoint]) -> Checkpoint:
    """Merge the parts of one checkpoint found on several nodes, and return the result and whether the checkpoint is
    complete. `copies` maps each node to its parts and must not be empty.

    A part that is damaged on one node and intact on another counts as intact. Parts of the same name with different
    sizes are damage: the nodes have saved different checkpoints under one name.
    """
    first = next(iter(copies.values()))
    united: Checkpoint = {**first, "parts": {}, "damaged": {}, "required": {}, "recorded": {}}
    owners: dict[str, str] = {}
    for node, copy in copies.items():
        for path, size in copy["parts"].items():
            if path in copy["damaged"]:
                continue
            if path in owners and united["parts"][path] != size and not is_of_rank(path):
                united["damaged"][path] = f"it has different sizes on {owners[path]} and {node}"
            owners.setdefault(path, node)
            united["parts"].setdefault(path, size)
        united["required"].update(copy["required"])
        united["recorded"].update(copy["recorded"])
    for copy in copies.values():
        for path, problem in copy["damaged"].items():
            if path not in united["parts"]:
                united["damaged"].setdefault(path, problem)
    united["size"] = sum(united["parts"].values())
    united["saved"] = max(copy["saved"] for copy in copies.values())
    return judge(united)


def is_of_rank(path: str) -> bool:
    """Return whether a part is one rank's random state, which other nodes do not need."""
    return RNG.match(path) is not None or RANDOM.match(path) is not None


def missing_parts(
    union: Checkpoint, copies: Mapping[str, Checkpoint], nodes: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return {node: {part: a node that has it}} for the parts that nodes lack, except for ranks' random state."""
    owners: dict[str, str] = {}
    for node, copy in copies.items():
        for path in copy["parts"]:
            if path not in copy["damaged"]:
                owners.setdefault(path, node)
    missing = {}
    for node in nodes:
        local = copies.get(node)
        present = {path for path in local["parts"] if path not in local["damaged"]} if local is not None else set()
        lacking = {path: owners[path] for path in union["parts"] if path not in present and not is_of_rank(path)}
        if lacking:
            missing[node] = lacking
    return missing


def choose_checkpoint(listings: Mapping[str, Sequence[Checkpoint]]) -> Choice:
    """Return the newest checkpoint that the nodes hold between them, and the parts that each node is missing.

    listings: the checkpoints of each node, by its name. Nodes that share a directory have equal listings. A checkpoint
    that needs parts from other nodes is preferred to an older one that does not: copying costs less than training
    again.
    """
    copies: dict[str, dict[str, Checkpoint]] = {}
    for node, listing in listings.items():
        for checkpoint in listing:
            copies.setdefault(checkpoint["name"], {})[node] = checkpoint
    torn: list[Checkpoint] = []
    for union in sort_newest_first([merge_parts(nodes) for nodes in copies.values()]):
        if union["complete"]:
            missing = missing_parts(union, copies[union["name"]], list(listings))
            return {"checkpoint": union, "missing": missing, "torn": torn}
        torn.append(union)
    return {"checkpoint": None, "missing": {}, "torn": torn}
