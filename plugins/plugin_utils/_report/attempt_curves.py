# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Curves across a run's attempts: files from later attempts continue them, and repeated steps count once."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable

from ansible_collections.muster.training.plugins.plugin_utils._report.curves import Curve, CurveSet

NODE = re.compile(r"logs/node([0-9]{1,6})/")
# An attempt's directory: ours, or one that Lightning numbers
ATTEMPT = re.compile(r"(?<=/)(attempt-|version_)([0-9]{1,6})/")


def group_by_source(paths: Iterable[str], first_nodes: Collection[int]) -> list[list[str]]:
    """Return the files for each source of curves, in the order of attempts.

    first_nodes: the nodes that had rank 0 in some attempt, by node_rank: what it wrote on them is one source.
    """
    groups: dict[str, list[str]] = {}
    for path in sorted(paths, key=attempt_order):
        match = NODE.match(path)
        name = ATTEMPT.sub("", path)
        if match is not None and int(match[1]) in first_nodes:
            name = name[match.end() :]
        groups.setdefault(name, []).append(path)
    return list(groups.values())


def attempt_order(path: str) -> tuple[list[int], str]:
    """Return the sort key for a file: its attempt numbers, then its path."""
    return [int(match[2]) for match in ATTEMPT.finditer(path)], path


def join_sources(sources: list[CurveSet]) -> CurveSet:
    """Return the curves from the first source, continued by those from the others."""
    first, *later_sources = sources
    for source in later_sources:
        for curve in source.list_curves():
            for step, time, value in zip(curve.step, curve.time, curve.value, strict=True):
                first.add(curve.name, step, time, value)
        for name, step in source.non_finite.items():
            first.non_finite.setdefault(name, step)
        first.left_out += source.left_out
    return first


def drop_repeated_steps(curve: Curve) -> None:
    """Keep the later values for steps that a later attempt repeats, as if the earlier attempt had ended before them."""
    kept: list[int] = []
    for index, step in enumerate(curve.step):
        while kept and curve.step[kept[-1]] >= step:
            kept.pop()
        kept.append(index)
    if len(kept) < len(curve.step):
        for name in ("step", "time", "value"):
            values = getattr(curve, name)
            setattr(curve, name, array("d", (values[index] for index in kept)))
