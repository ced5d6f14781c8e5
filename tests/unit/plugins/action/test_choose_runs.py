# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selection of old runs by number and age, excluding runs that are or may be active."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.action.choose_runs import (
    ActionModule,
    matching_runs,
    merge_runs,
    old_runs,
    render_table,
)

NOW = 1_800_000_000.0
DAY = 86400.0


def make_reply(*runs: tuple[str, float, str]) -> dict[str, Any]:
    """Return a node's reply with runs on the nodes a and b, given as name, age in days and state."""
    return {
        "runs": [
            {
                "run_id": run_id,
                "nodes": ["a", "b"],
                "state": state,
                "alive": state == "running",
                "started": NOW - age * DAY,
                "directory": f"/runs/{run_id}/node0",
                "size": 1_000_000,
            }
            for run_id, age, state in runs
        ]
    }


RUNS = make_reply(("new", 1, "succeeded"), ("live", 40, "running"), ("failed", 50, "failed"), ("oldest", 60, "stopped"))
BOTH = {"a": RUNS, "b": RUNS}


def choose_old(results: dict[str, Any], keep: str = "", older_than: str = "") -> list[str]:
    queried = {name for name, reply in results.items() if reply and "runs" in reply}
    return old_runs(merge_runs(results), keep, older_than, queried, NOW)


def test_each_run_is_listed_once_newest_first() -> None:
    runs = merge_runs(BOTH)
    assert [(run["run_id"], run["state"], run["stored_on"], run["size"]) for run in runs] == [
        ("new", "succeeded", ["a", "b"], 2_000_000),
        ("live", "running", ["a", "b"], 2_000_000),
        ("failed", "failed", ["a", "b"], 2_000_000),
        ("oldest", "stopped", ["a", "b"], 2_000_000),
    ]
    table = render_table(runs).splitlines()
    assert len(table) == 5 and table[1].split()[:2] == ["new", "succeeded"] and table[1].endswith("2 MB  a, b")


def test_runs_show_their_job_and_outcome() -> None:
    results = make_reply(("new", 1, "failed"), ("old", 2, "succeeded"))
    results["runs"][0].update(
        job=f"train.py --lr {'1' * 80}", project="/home/me/toy", outcome="ValueError: \x1b[2Jboom"
    )
    results["runs"][1].update(job="eval.py", project="/home/me/other/", outcome="loss 0.31")
    runs = merge_runs({"b": make_reply(("new", 1, "failed")), "a": results})
    lines = render_table(runs).splitlines()
    assert lines[0].split()[-2:] == ["JOB", "OUTCOME"]
    assert f"train.py --lr {'1' * 45}… in toy" in lines[1] and lines[1].endswith("ValueError: [2Jboom")
    assert "  eval.py in other  " in lines[2] and lines[2].endswith("  loss 0.31")
    for text, result in (
        ("VALUEERROR", ["new"]),
        ("other", ["old"]),
        ("eval.py", ["old"]),
        ("0.3", ["old"]),
        ("x", []),
    ):
        assert [run["run_id"] for run in matching_runs(runs, text)] == result


@pytest.mark.parametrize(
    ("keep", "older_than", "removed"),
    [
        ("", "", []),
        ("0", "", ["new", "failed", "oldest"]),
        ("1", "", ["failed", "oldest"]),
        ("3", "", ["oldest"]),
        ("20", "", []),
        ("", "30d", ["failed", "oldest"]),
        ("", "8w", ["oldest"]),
        ("", "24h", ["new", "failed", "oldest"]),
        ("", "99999m", []),
        ("3", "30d", ["oldest"]),
        ("1", "8w", ["oldest"]),
    ],
)
def test_old_runs_are_chosen_by_number_and_age_except_live_ones(keep: str, older_than: str, removed: list[str]) -> None:
    assert choose_old(BOTH, keep, older_than) == removed


def test_run_alive_on_any_node_is_kept() -> None:
    assert choose_old({"a": make_reply(("x", 9, "died")), "b": make_reply(("x", 9, "running"))}, keep="0") == []


@pytest.mark.parametrize("silent", [None, {"unreachable": True, "msg": "timed out"}, {"failed": True}])
def test_run_with_unresponsive_node_is_kept(silent: Any) -> None:
    assert choose_old({"a": RUNS, "b": silent}, keep="0") == []
    assert choose_old({"a": RUNS}, keep="0") == []


INVALID_FIELDS: list[dict[str, Any]] = [
    {"run_id": "\x1b[2Jx"},
    {"started": 1e300},
    {"started": "x"},
    {"size": "x"},
    {"size": -1},
    {"nodes": None},
    {"nodes": ["\x1b[2J"]},
    {"state": "\x1b[2Jx"},
    {"alive": "no"},
    {"job": 5},
    {"outcome": {}},
]


@pytest.mark.parametrize("fields", INVALID_FIELDS)
def test_invalid_list_of_a_node_is_neither_shown_nor_used_to_remove_runs(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list as a whole is invalid: the node may omit or alter any of its runs."""
    invalid = make_reply(("new", 1, "succeeded"), ("forged", 90, "stopped"))
    invalid["runs"][1].update(fields)
    shown: list[str] = []
    monkeypatch.setattr(Display, "display", lambda _display, text: shown.append(text))
    monkeypatch.setattr(Display, "warning", lambda _display, text: shown.append(text))
    action = ActionModule.__new__(ActionModule)
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_arguments: {})
    arguments = {"results_by_node": {"a": RUNS, "b": invalid, "c": None}, "keep": "0"}
    options = {"older_than": "", "grep": "", "jmespath": ""}
    monkeypatch.setattr(action, "validate_argument_spec", lambda **_spec: ({}, {**arguments, **options}))
    result = action.run()
    assert [(run["run_id"], run["stored_on"]) for run in result["runs"]] == [
        (run_id, ["a"]) for run_id in ("new", "live", "failed", "oldest")
    ]
    assert result["old"] == []
    assert shown[1:] == [
        "c did not respond: their runs are neither listed nor removed",
        "b sent an invalid reply: their runs are neither listed nor removed; check there whether a job has changed "
        "Python or the run directories",
    ]


@pytest.mark.parametrize("reply", [{"runs": None}, {"runs": {}}, {"runs": ["first"]}, {"runs": 5}])
def test_reply_that_is_not_a_list_of_runs_is_ignored(reply: dict[str, Any]) -> None:
    assert merge_runs({"a": reply}) == []


def test_node_cannot_change_the_age_or_nodes_of_a_run() -> None:
    """The latest start and all nodes of all replies apply."""
    forged = make_reply(("new", 900, "succeeded"))
    forged["runs"][0]["nodes"] = ["b"]
    assert choose_old({"a": RUNS, "b": forged}, older_than="30d") == ["failed", "oldest"]
    assert merge_runs({"b": forged, "a": RUNS})[0]["nodes"] == ["b", "a"]


@pytest.mark.parametrize(
    ("keep", "older_than", "text"),
    [
        ("all", "", "keep is 'all': set the number of newest runs to keep, such as -e keep=20"),
        ("-1", "", "keep is '-1'"),
        ("", "30", "older_than is '30': use a number with a unit (m, h, d or w), such as -e older_than=30d"),
        ("", "a month", "older_than is 'a month'"),
    ],
)
def test_invalid_keep_or_older_than_is_refused(keep: str, older_than: str, text: str) -> None:
    with pytest.raises(AnsibleActionFail) as excinfo:
        choose_old(BOTH, keep, older_than)
    assert text in str(excinfo.value)
