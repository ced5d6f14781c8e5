# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions under which code is synced before a launch."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action.compare_code import find_skip_reason, render_differences

NODES = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}]
HERE = [{"name": "a", "address": "127.0.0.1"}, {"name": "b", "address": "127.0.0.2"}]
IDLE: dict[str, Any] = {"runs": []}
BUSY: dict[str, Any] = {"runs": [{"run_id": "other", "address": "127.0.0.9"}]}


@pytest.mark.parametrize(
    ("nodes", "replies", "expected", "allow_busy", "skip_reason"),
    [
        (NODES, {"a": IDLE, "b": IDLE}, "synced", False, ""),
        (NODES, {"a": IDLE, "b": IDLE}, "as_is", False, "as_is"),
        (NODES, {"a": IDLE}, "synced", False, "refused"),
        (NODES, {"a": IDLE, "b": BUSY}, "synced", False, "refused"),
        (NODES, {"a": IDLE, "b": BUSY}, "synced", True, ""),
        # a run on other nodes of this machine
        (HERE, {"a": BUSY, "b": BUSY}, "synced", False, ""),
    ],
)
def test_code_is_synced_only_when_a_run_can_start(
    nodes: list[dict[str, Any]], replies: dict[str, Any], expected: str, allow_busy: bool, skip_reason: str
) -> None:
    assert find_skip_reason(nodes, replies, expected, allow_busy) == skip_reason


def test_summary_of_synced_code_is_short_and_without_control_characters() -> None:
    def older_copy(name: str) -> dict[str, Any]:
        return {"counts": {"older": 1}, "names": {"older": [name]}}

    many_nodes = {f"node{number}": older_copy("train.py") for number in range(64)}
    output = render_differences({"source": "/me/project"}, many_nodes).splitlines()
    assert output == [
        "copying the code from /me/project",
        "  node0, node1, node2 and 61 more: train.py is older on the node",
    ]
    each = {f"node{number}": older_copy(f"{number}\x1b[2J.py") for number in range(64)}
    output = render_differences({"source": "/me/project"}, each).splitlines()
    assert len(output) == 4 and output[-1] == "  and 62 more" and "\x1b" not in "".join(output)
