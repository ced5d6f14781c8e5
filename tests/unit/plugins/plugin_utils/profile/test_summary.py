# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summary and timeline of profiles: waits despite different clocks and first steps; hostile replies and traces."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.action.run_profile import ActionModule as ProfileAction
from ansible_collections.muster.training.plugins.action.run_stacks import ActionModule as StacksAction
from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry
from ansible_collections.muster.training.plugins.module_utils._run import profile
from ansible_collections.muster.training.plugins.module_utils._run.profile_documents import DIRECTORY
from ansible_collections.muster.training.plugins.module_utils._run.profile_trace import MAX_COLLECTIVES, analyze
from ansible_collections.muster.training.plugins.plugin_utils._profile import timeline
from ansible_collections.muster.training.plugins.plugin_utils._profile.collectives import match_sequences
from ansible_collections.muster.training.plugins.plugin_utils._profile.summary import (
    format_count,
    format_profile,
    summarize,
    unknown_ranks,
    validate_ranks,
)
from ansible_collections.muster.training.plugins.plugin_utils._profile.timeline import RankTrace, merge_traces

KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def collectives(number: int, wait: float, clock: float = 0.0, first: int = 0) -> list[dict[str, Any]]:
    """Return the collectives of a rank that completes one per second, with a clock that is ahead."""
    seconds = 0.01 + wait
    moments = [1000.0 + index + 0.1 * (index % 3) for index in range(first, first + number)]
    return [{"name": "gloo:all_reduce", "start": at - seconds + clock, "seconds": seconds} for at in moments]


def result(rank: int, wait: float, **more: Any) -> dict[str, Any]:
    """Return the analysis of a rank with steps of one second."""
    first = more.get("first", 0)
    return {
        "rank": rank,
        "pid": 7,
        "error": "",
        "steps": [1000.0 + first + index for index in range(7)],
        "size": 10,
        "operations": [{"name": "aten::mm", "device": "cpu", "count": 12, "seconds": 0.6}],
        "collectives": collectives(6, wait, **more),
        "collective_seconds": 6 * (0.01 + wait),
        "gpu_seconds": 0.0,
    }


def test_the_late_rank_is_named_although_clocks_and_first_steps_differ() -> None:
    nodes = {"a": [result(0, 0.4)], "b": [result(1, 0.0, clock=0.2)], "c": [result(2, 0.4, clock=-0.1, first=1)]}
    profile = summarize("first", 0.0, nodes, ["d: no reply"])
    assert profile["late"] == [1]
    assert [round(entry["clock_offset"], 3) for entry in profile["ranks"]] == [0.0, 0.2, -0.1]
    waits = [entry["waiting_seconds"] or 0.0 for entry in profile["ranks"]]
    assert waits[1] == 0.0 and waits[0] == pytest.approx(0.4 * 5 / 6)  # five collectives are in all three profiles
    text = "\n".join(format_profile(profile))
    assert "the other ranks wait for rank 1" in text and "not profiled: d: no reply" in text
    assert "100.0 ms  2x  aten::mm" in text


def test_ranks_of_different_groups_are_not_compared() -> None:
    gloo = [{**entry, "name": "gloo:broadcast"} for entry in collectives(6, 0.0)]
    assert match_sequences(collectives(6, 0.0), gloo) is None
    profile = summarize("first", 0.0, {"a": [result(0, 0.4), {**result(1, 0.0), "collectives": gloo}]}, [])
    assert not profile["late"] and [entry["waiting_seconds"] for entry in profile["ranks"]] == [None, None]


def test_equally_fast_ranks_do_not_wait() -> None:
    assert not summarize("first", 0.0, {"a": [result(rank, 0.01) for rank in range(4)]}, [])["late"]


@pytest.mark.parametrize(
    "change",
    [
        {"rank": "0"},
        {"collectives": [{"name": "x"}]},
        {"collectives": collectives(MAX_COLLECTIVES + 1, 0.0)},  # each rank is compared with the first one
        {"steps": ["now"]},
        {"gpu_seconds": float("nan")},
        {"size": -1},
    ],
)
def test_an_invalid_reply_is_refused(change: dict[str, Any]) -> None:
    node = {"name": "a", "first_rank": 0, "slots": 1}
    assert validate_ranks({"node": node, "id": "", "ranks": [result(0, 0.0)]})
    assert validate_ranks({"node": node, "id": "", "ranks": [{**result(0, 0.0), **change}]}) is None


def test_ranks_of_other_nodes_are_ignored() -> None:
    node = {"name": "a", "first_rank": 4, "slots": 1}
    assert validate_ranks({"node": node, "id": "", "ranks": [result(0, 0.0)]}) == []


def event(name: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration, **more}


def test_a_trace_is_reduced_to_self_times_kernels_and_collectives() -> None:
    trace = {
        "baseTimeNanoseconds": 10**18,
        "traceEvents": [
            event("aten::linear", 0, 100),
            event("aten::mm", 10, 60),
            event("sgemm", 20, 500, cat="kernel", pid=0, tid=7),
            event(KERNEL, 600, 200, cat="kernel", pid=0, tid=9),
            event(KERNEL, 700, 200, cat="kernel", pid=0, tid=9),
            event("nccl:all_reduce", 600, 5, cat="user_annotation"),
            {"ph": "X", "name": "broken", "ts": "soon", "dur": 1},
            {"ph": "X", "name": "negative", "ts": 1, "dur": -1},
            "text",
        ],
    }
    analysis = analyze(trace)
    seconds = {entry["name"]: round(entry["seconds"] * 1e6) for entry in analysis["operations"]}
    assert seconds["aten::linear"] == 40 and seconds["aten::mm"] == 60 and seconds["sgemm"] == 500
    assert [entry["name"] for entry in analysis["collectives"]] == ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"] * 2
    assert analysis["collective_seconds"] == pytest.approx(300e-6, abs=1e-6)  # the collectives overlap
    assert analysis["gpu_seconds"] == pytest.approx(800e-6, abs=1e-6)
    assert (
        analyze([])
        == analyze({"traceEvents": 3})
        == {
            "operations": [],
            "collectives": [],
            "collective_seconds": 0.0,
            "gpu_seconds": 0.0,
        }
    )


def test_traces_are_merged_on_one_clock_and_bad_ones_are_named(tmp_path: Path) -> None:
    def write(rank: int, content: bytes) -> RankTrace:
        path = tmp_path / f"{rank}.gz"
        path.write_bytes(content)
        return RankTrace(rank, f"gpu{rank}", path, 0.5 * rank)

    def pack(base: int) -> bytes:
        events = [event("work", 1e6, 10, args={"x": "</script>"}), {"ph": "M", "name": "process_name", "pid": 1}]
        return gzip.compress(json.dumps({"baseTimeNanoseconds": base, "traceEvents": [*events, 7]}).encode())

    traces = [
        write(0, pack(10**18)),
        write(1, pack(10**18 + 500_000_000)),
        write(2, b"no gzip"),
        write(3, pack(0)[:20]),
    ]
    errors = merge_traces(traces, tmp_path / "timeline.json.gz")
    assert sorted(errors) == [2, 3]
    merged = json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))["traceEvents"]
    assert [(entry["pid"], entry["ts"]) for entry in merged if entry["name"] == "work"] == [(0, 0.0), (10, 0.0)]
    names = [entry["args"]["name"] for entry in merged if entry["name"] == "process_name"]
    assert names == ["rank 0 on gpu0", "rank 1 on gpu1"]


def test_message_of_a_node_is_sanitised_for_the_terminal() -> None:
    reads = {"gpu1": {"failed": True, "msg": "gpu1: \x1b]0;title\x07there is no run"}}
    for show in (ProfileAction.show, StacksAction.show):
        with pytest.raises(AnsibleActionFail, match="there is no run") as caught:
            show(
                cast("Any", None), {"run_id": "first", "rank": "", "ranks": "", "record": "", "results_by_node": reads}
            )
        assert "\x1b" not in str(caught.value) and "\x07" not in str(caught.value)


def test_files_of_a_profile_are_removed_at_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may nest directories so deeply that recursive removal fails."""
    path = tmp_path / DIRECTORY / ("0" * 16)
    path.mkdir(parents=True)
    monkeypatch.chdir(path)
    for _level in range(1200):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(tmp_path)
    monkeypatch.setattr(profile, "find_run", lambda _request: (str(tmp_path), {}))
    try:
        reply = profile.profile_piece({"id": path.name, "offset": -1})
        assert reply["last"] and not path.exists()
    finally:
        remove_entry(str(path))  # pytest's own removal also fails


def test_small_objects_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_OBJECTS", 100)
    path = tmp_path / "rank-0.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b"{}, " * 100 + b"{}]}"))
    errors = merge_traces([RankTrace(0, "a", path, 0.0)], tmp_path / "timeline.json.gz")
    assert errors == {0: "it has more than 100 objects"}


def reply(first: int, slots: int) -> dict[str, Any]:
    """Return the valid part of a node's reply that describes its ranks."""
    return {"node": {"name": "gpu1", "first_rank": first, "slots": slots}, "id": "", "ranks": []}


def test_ranks_that_do_not_exist_in_the_run_are_named() -> None:
    replies = [reply(0, 2), reply(2, 2)]
    assert unknown_ranks([7], replies) == ["rank 7 does not exist: the run has ranks 0 to 3"]
    assert unknown_ranks([3, 4, 9], replies) == ["ranks 4, 9 do not exist: the run has ranks 0 to 3"]
    assert unknown_ranks([0, 3], replies) == unknown_ranks([], replies) == []
    assert unknown_ranks([7], [*replies, {"unreachable": True}]) == []  # it may have rank 7


def test_operation_that_does_not_run_in_every_step_has_a_fractional_count() -> None:
    assert [format_count(count) for count in (0.2, 1.0, 12.4)] == ["0.2", "1", "12"]


def test_new_profile_replaces_traces_of_ranks_that_it_does_not_include(tmp_path: Path) -> None:
    directory = tmp_path / "profiles"
    directory.mkdir()
    for rank in (0, 1, 12):
        (directory / f"rank-{rank}.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    (directory / "of_the_user.txt").write_text("")
    profile = summarize("first", 0.0, {"a": [result(0, 0.1)]}, [])
    ProfileAction.merge(profile, tmp_path)
    assert sorted(path.name for path in directory.iterdir()) == [
        "of_the_user.txt",
        "rank-0.json.gz",
        "timeline.json.gz",
    ]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [({"ranks": "a-b"}, "./muster profile --ranks 0,3-7"), ({"steps": 0}, "./muster profile --steps 5")],
)
def test_invalid_options_are_refused_with_the_command_to_type(
    arguments: dict[str, Any], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    action = ProfileAction.__new__(ProfileAction)
    args = {"ranks": "", "steps": 5, "results_by_node": None, **arguments}
    monkeypatch.setattr(ProfileAction.__mro__[1], "run", lambda *_arguments, **_options: {})
    monkeypatch.setattr(action, "validate_argument_spec", lambda **_options: (None, args), raising=False)
    with pytest.raises(AnsibleActionFail, match=command):
        action.run()
