# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine which nodes a verdict blames for broken hardware. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Errors on a rank that only broken hardware causes; others, such as a failed kernel, are often caused by a bug.
CERTAIN = re.compile(r"uncorrectable (ECC|NVLink)|fallen off the bus|GPU is lost|GPU requires reset", re.IGNORECASE)
LOST_GPU = re.compile(r"GPU is lost|GPU requires reset|fallen off the bus|no longer shows GPU", re.IGNORECASE)


class Blame(NamedTuple):
    """A node whose hardware is broken. gpus: the UUIDs of the broken GPUs, [] if unknown."""

    node: str
    reason: str
    gpus: list[str]


def blamed_nodes(verdict: Mapping[str, Any]) -> list[Blame]:
    """Return the nodes whose hardware broke, each once; [] if the run succeeded in its first attempt."""
    if verdict["state"] == "succeeded" and len(verdict.get("attempts") or []) < 2:
        return []
    blames: dict[str, Blame] = {}
    for blame in all_blames(verdict):
        earlier = blames.get(blame.node)
        if earlier is None or (not earlier.gpus and blame.gpus):
            blames[blame.node] = blame
    return list(blames.values())


def all_blames(verdict: Mapping[str, Any]) -> Iterator[Blame]:
    """Yield the signs of broken hardware, the most reliable first: from the driver, nvidia-smi, or a rank."""
    for node in verdict["nodes"]:
        for finding in node.get("health") or []:
            if finding["hardware"]:
                yield Blame(node["name"], finding["text"], [finding["gpu"]] if finding["gpu"] else [])
    names = {node["name"] for node in verdict["nodes"]}
    for broken in verdict.get("broken") or []:  # includes hardware in earlier attempts, and on nodes that were lost
        if broken["node"] in names:
            yield Blame(broken["node"], broken["text"].removeprefix(f"{broken['node']}: "), [])
    for node in verdict["nodes"]:
        if LOST_GPU.search(node.get("gpus") or ""):
            yield Blame(node["name"], node["gpus"], [])
    failure = verdict["first_failure"]
    if failure and CERTAIN.search(failure["error"]):
        yield Blame(failure["node"], failure["error"], [])
