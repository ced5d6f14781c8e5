# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a run, as keep reads it from the output of status.yml."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import ACTIVE, ENDED, UNKNOWN, MissingNode
from ansible_collections.muster.training.plugins.plugin_utils._keep.situation import read_situation

NAMES = ("gpu1", "gpu2")
MISSING = [{"node_rank": 1, "name": "gpu2", "excluded": False}]


def status(first: str, second: str, **more: Any) -> dict[str, Any]:
    return {"nodes": [{"node": "gpu1", "state": first, **more}, {"node": "gpu2", "state": second}]}


@pytest.mark.parametrize(
    ("content", "has_result", "state"),
    [
        (status("running", "unreachable"), False, ACTIVE),
        (status("restarting", "died"), False, ACTIVE),
        (status("failed", "died"), False, ENDED),
        (status("failed", "unreachable"), False, UNKNOWN),
        (status("unreachable", "not read"), False, UNKNOWN),
        (status("failed", "unreachable"), True, ENDED),
        (None, False, UNKNOWN),
        ({"nodes": "gpu1"}, False, UNKNOWN),
    ],
)
def test_run_state_is_determined(content: Any, has_result: bool, state: str) -> None:
    assert read_situation(content, has_result, NAMES, NAMES, (True, True)).state == state


def test_missing_nodes_are_those_reported_by_the_node_that_leads_the_run() -> None:
    at = read_situation(status("running", "unreachable", missing=MISSING), False, NAMES, NAMES, (True, False))
    assert at.missing == (MissingNode("gpu2"),) and at.unreachable == {"gpu2"} and at.rents and not at.has_budget
    ended = status("failed", "running", missing=MISSING)
    assert read_situation(ended, False, NAMES, NAMES, (True, True)).missing == ()


@pytest.mark.parametrize("entry", [None, {"name": "gpu2"}, {"name": "a\nb", "excluded": True}, {"excluded": True}])
def test_malformed_entries_of_a_node_are_ignored(entry: Any) -> None:
    at = read_situation(status("running", "running", missing=[entry]), False, NAMES, NAMES, (True, True))
    assert at.missing == ()


def test_no_machine_is_created_for_names_invented_by_a_node() -> None:
    entries = [{"name": name, "excluded": False} for name in ("gpu2", "gpu7", "gpu2", *(f"x{n}" for n in range(99)))]
    at = read_situation(status("running", "unreachable", missing=entries), False, NAMES, NAMES, (True, True))
    assert at.missing == (MissingNode("gpu2"),)


def test_majoritys_list_is_trusted_over_that_of_an_isolated_node() -> None:
    names = ("gpu1", "gpu2", "gpu3")

    def lists(*missing: str) -> list[dict[str, Any]]:
        return [{"node_rank": names.index(name), "name": name, "excluded": False} for name in missing]

    nodes = [
        {"node": "gpu1", "state": "restarting", "missing": lists("gpu2", "gpu3")},
        {"node": "gpu2", "state": "running", "missing": lists("gpu1")},
        {"node": "gpu3", "state": "running", "missing": []},
    ]
    at = read_situation({"nodes": nodes}, False, names, names, (True, True))
    assert at.missing == (MissingNode("gpu1"),)


@pytest.mark.parametrize("entries", [[0], "x", [{"name": "gpu9", "excluded": False}]])
def test_malformed_list_of_another_node_hides_no_missing_node(entries: Any) -> None:
    nodes = [
        {"node": "gpu1", "state": "running", "missing": MISSING},
        {"node": "gpu3", "state": "running", "missing": entries},
    ]
    at = read_situation({"nodes": nodes}, False, NAMES, NAMES, (True, True))
    assert at.missing == (MissingNode("gpu2"),)
