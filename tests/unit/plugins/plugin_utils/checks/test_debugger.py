# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rank to debug must exist, and its node must have debugpy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.healthy import cluster, findings, nothing, spoilt


def install(*nodes: str) -> Any:
    """Return a function that adds debugpy to the facts of these nodes."""
    return lambda facts: [facts[name]["software"]["packages"].update(debugpy="1.8.22") for name in nodes]


@pytest.mark.parametrize(
    ("spoil", "rank", "expected"),
    [
        (nothing, None, []),
        (install("node2"), 1, []),
        (nothing, 1, [("error", "debugpy-missing", ("node2",))]),
        (install("node1"), 1, [("error", "debugpy-missing", ("node2",))]),
        (nothing, 4, [("error", "debug-rank", ("node1",))]),
        (
            lambda f: f["node2"]["software"].update(error="broken", python=None, packages={}),
            1,
            [("error", "interpreter-broken", ("node2",))],
        ),
    ],
)
def test_a_rank_that_cannot_be_debugged_is_reported(spoil: Any, rank: int | None, expected: Any) -> None:
    assert spoilt(spoil, nproc_per_node=1, debug_rank=rank) == expected


def test_debugpy_is_installed_into_the_users_python() -> None:
    result = findings(cluster(2), nproc_per_node=1, debug_rank=1, interpreter="/opt/conda/bin/python")
    assert [finding.remedy for finding in result if finding.id == "debugpy-missing"] == [
        "run `/opt/conda/bin/python -m pip install debugpy` on each node"
    ]


@pytest.mark.parametrize(("slots", "expected"), [(1, []), (2, [("error", "debug-rank", ("node2",))])])
def test_a_rank_started_by_the_script_itself_cannot_be_debugged(slots: int, expected: Any) -> None:
    result = spoilt(install("node1", "node2"), nproc_per_node=slots, launcher="env", debug_rank=slots)
    assert [finding for finding in result if finding[1].startswith("debug")] == expected
