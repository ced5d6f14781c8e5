"""The status of a run as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.action.run_status import (
    describe_exited_ranks,
    format_metrics,
    node_status,
    read_metrics,
    render_status,
    write_json,
)


def make_reply(name: str, rank: int, **more: Any) -> dict[str, Any]:
    run = {
        "run_id": "first",
        "node": name,
        "node_rank": rank,
        "ranks": [2 * rank, 2 * rank + 1],
        "state": "running",
        "message": "",
        "since": 1000.0,
        "last_line": "step 7",
        "seconds_since_output": 2.5,
        "gpus": None,
        "ended_ranks": {},
        "directory": f"/runs/first/node{rank}",
        "report": None,
        "result": None,
        **more,
    }
    return {"changed": False, "run": run}


def test_arbitrary_job_output_does_not_break_the_status() -> None:
    """Steps may be arbitrary numbers, such as two very close ones."""
    tail = "".join(
        f'MUSTER_RESULT {{"loss": 1, "step": {step}}}\n' for step in ("0", "5e-324", "-1e308", "NaN", "1e999")
    )
    assert [metric["name"] for metric in read_metrics(tail)] == ["loss"]
    assert read_metrics("\n".join(tail.splitlines()[:2]))[0]["recent"] == [1.0]


def test_table_shows_state_of_each_node() -> None:
    nodes = [
        node_status("node9", make_reply("node9", 0)),
        node_status("node10", make_reply("node10", 1, ranks=[2], state="failed", message="node9 is lost: silent")),
        node_status("node11", {"changed": False, "run": None}),
        node_status(
            "node12", {"node_unreachable": True, "msg": "Task failed: ssh: connect to host a port 22: timed out"}
        ),
        node_status("node13", {"failed": True, "msg": "no Python"}),
        node_status("node14", None),
        node_status("node15", {"skipped": True}),
    ]
    assert render_status(nodes, 1075.0) == (
        "node    ranks  state        since    last line\n"
        "node9   0-1    running      0:01:15  step 7\n"
        "node10  2      failed       0:01:15  node9 is lost: silent\n"
        "node11         no run\n"
        "node12         unreachable           it did not respond in time\n"
        "node13         not read              no Python\n"
        "node14         not read              not queried\n"
        "node15         unreachable           did not respond a moment ago"
    )


def test_last_line_is_shown_without_the_colors_of_the_job() -> None:
    line = "\x1b[1;34mwandb\x1b[0m: Find logs at: \x1b[1;35mwandb/run-1\x1b[0m"
    table = render_status([node_status("a", make_reply("a", 0, last_line=line))], 1075.0)
    assert table.endswith(" wandb: Find logs at: wandb/run-1")


def test_ranks_that_have_exited_are_named() -> None:
    nodes = [
        node_status("node1", make_reply("node1", 0, ended_ranks={"1": 200.0, "0": 190.0}, seconds_since_output=200.0)),
        node_status("node2", make_reply("node2", 1, ended_ranks={"3": 20.0})),
        node_status("node3", make_reply("node3", 2, state="failed", ended_ranks={})),
    ]
    lines = render_status(nodes, 1075.0).splitlines()
    assert lines[1].endswith("ranks 0-1 exited with code 0; no output for 3 min; step 7")
    assert lines[2].endswith("rank 3 exited with code 0; step 7")
    assert describe_exited_ranks(nodes) == (
        "ranks 0-1, 3 on node1, node2 exited with code 0 20 s ago; rank 2 on node2 still runs"
    )
    assert describe_exited_ranks(nodes[2:]) == ""


def gpu(index: int, **more: float | None) -> dict[str, Any]:
    """Return a GPU sample in the format of gpus.csv."""
    return {
        "index": index,
        "utilization_percent": 97.0,
        "memory_used_mib": 72914.0,
        "memory_total_mib": 81559.0,
        **more,
    }


def test_table_shows_gpu_utilization_and_memory() -> None:
    idle = gpu(1, utilization_percent=0.0, memory_used_mib=4.0)
    unmeasured = gpu(0, utilization_percent=None, memory_used_mib=None)
    gpus = {
        "a": {"age": 3.0, "devices": [gpu(0), idle]},
        "b": {"age": 14.0, "devices": [gpu(0)]},
        "c": {"age": 95.0, "devices": [gpu(0)]},
        "d": {"age": 3.0, "devices": [unmeasured]},
        "e": None,
    }
    nodes = [node_status(name, make_reply(name, rank, gpus=gpus[name])) for rank, name in enumerate(gpus)]
    assert render_status(nodes, 1075.0) == (
        "node  ranks  state    since    gpus                  last line\n"
        "a     0-1    running  0:01:15  0-97 %, 71 of 80 GiB  step 7\n"
        "b     2-3    running  0:01:15  97 %, 71 of 80 GiB    step 7\n"
        "c     4-5    running  0:01:15  no reply for 0:01:35  step 7\n"
        "d     6-7    running  0:01:15                        step 7\n"
        "e     8-9    running  0:01:15                        step 7"
    )


def test_table_shows_recent_gpu_utilization() -> None:
    gpus = {"age": 3.0, "devices": [gpu(0)], "trend": [0.0, 50.0, 100.0]}
    table = render_status([node_status("a", make_reply("a", 0, gpus=gpus))], 1075.0)
    assert "▁▅█ 97 %, 71 of 80 GiB  step 7" in table
    hostile = {**gpus, "trend": ["\x1b[31m", 5]}
    assert "  97 %, 71 of 80 GiB" in render_status([node_status("a", make_reply("a", 0, gpus=hostile))], 1075.0)


def test_metrics_of_the_first_rank_are_shown_with_sparklines() -> None:
    tail = "cut loss\n" + "".join(f"step {step}: loss {8.5 - step}\n" for step in range(8)) + "\x1b[31mend"
    node = node_status("a", make_reply("a", 0, tail=tail))
    assert node["metrics"] == [{"name": "loss", "last": 1.5, "step": 7.0, "recent": [8.5 - step for step in range(8)]}]
    assert format_metrics(node["metrics"]) == "loss 1.5 █▇▆▅▄▃▂▁"
    assert node_status("a", make_reply("a", 0, tail=["x"]))["metrics"] == []
    assert format_metrics([]) == ""


def test_node_with_clock_ahead_shows_zero_duration() -> None:
    assert render_status([node_status("a", make_reply("a", 0, since=8200.0))], 1000.0).splitlines()[1].split() == [
        *("a", "0-1", "running", "0:00:00", "step", "7")
    ]


@pytest.mark.parametrize(
    ("name", "reason"), [("", "Is a directory"), ("gone/status.json", "No such file or directory")]
)
def test_error_names_json_file_that_cannot_be_written(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(AnsibleActionFail) as excinfo:
        write_json(str(tmp_path / name), {"run_ids": [], "nodes": []})
    assert str(excinfo.value).startswith(
        f"cannot write {tmp_path / name}: {reason}; name a writable file with -e json=FILE"
    )


def test_table_shows_how_long_a_job_has_been_silent() -> None:
    table = render_status(
        [
            node_status("a", make_reply("a", 0, seconds_since_output=59.9)),
            node_status("b", make_reply("b", 1, seconds_since_output=250.0)),
        ],
        2000.0,
    )
    assert [line.partition("0:16:40  ")[2] for line in table.splitlines()[1:]] == [
        "step 7",
        "no output for 4 min; step 7",
    ]


ESCAPES = "\x1b[2Jx\nfake"
GPUS = {"age": 1.0, "devices": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"state": ESCAPES},
        {"ranks": [ESCAPES]},
        {"run_id": ESCAPES},
        {"since": "x"},
        {"since": float("-inf")},
        {"ended_ranks": {"x": 1.0}},
        {"ended_ranks": {"1": float("inf")}},
        {"gpus": {}},
        {"gpus": {**GPUS, "age": float("inf")}},
        {"gpus": {**GPUS, "devices": [{"utilization_percent": "97"}]}},
        {"last_line": None},
        {"message": 5},
        {"node_rank": "0"},
        {"seconds_since_output": "x"},
        {"health": "text"},
        {"attempt": "2"},
        {"missing": [ESCAPES]},
    ],
)
def test_node_with_an_invalid_reply_counts_as_not_read(fields: dict[str, Any]) -> None:
    nodes = [node_status("a", make_reply("a", 0, **fields)), node_status("b", make_reply("b", 1))]
    assert [node["state"] for node in nodes] == ["not read", "running"]
    assert render_status(nodes, 1075.0).splitlines()[1].split(maxsplit=3) == [
        *("a", "not", "read"),
        "a sent an invalid reply: check there whether a job has changed Python or the run's files",
    ]
    assert describe_exited_ranks(nodes) == ""


@pytest.mark.parametrize("run", ["running", [], {}, {"state": "running"}])
def test_reply_that_does_not_describe_a_run_is_invalid(run: Any) -> None:
    assert node_status("a", {"changed": False, "run": run})["state"] == "not read"


def test_gpu_without_values_is_shown_as_unmeasured() -> None:
    node = node_status("a", make_reply("a", 0, gpus={"age": 1.0, "devices": [{"index": 0}]}))
    assert render_status([node], 1075.0).splitlines()[1].split() == ["a", "0-1", "running", "0:01:15", "step", "7"]


@pytest.mark.parametrize("since", [float("-inf"), -1e300, float("nan"), "x", None])
def test_impossible_start_of_a_hang_is_ignored(since: Any) -> None:
    hang = {"text": "t", "since": since, "awaited_ranks": [], "groups": []}
    node = node_status("a", make_reply("a", 0, hang=hang))
    assert node["hang"] == {**hang, "since": None}


@given(st.text())
def test_any_last_line_takes_one_printable_table_row(text: str) -> None:
    table = render_status([node_status("a", make_reply("a", 0, last_line=text))], 2000.0)
    assert len(table.split("\n")) == 2
    assert all(character.isprintable() or character == "\n" for character in table)
