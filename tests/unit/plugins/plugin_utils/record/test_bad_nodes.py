# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of bad nodes: its file, the recorded nodes, and the recognition of machines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import (
    BadNodesError,
    add_entry,
    change_entries,
    describe_entry,
    make_entry,
    matches,
    read_entries,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.machine_identity import summarize_identity
from ansible_collections.muster.training.plugins.plugin_utils._record.remember import record_bad_nodes

IDENTITY = {"serial": "J1050", "asset": "", "machine_id": "4ac3", "gpus": ["GPU-a", "GPU-b"]}
FALLEN = "Xid 79 on GPU 1 (GPU has fallen off the bus)"


def test_entries_are_kept_and_replace_earlier_entries_for_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "bad-nodes.json"
    assert read_entries(path) == []
    first = make_entry("gpu3", FALLEN, "bert", IDENTITY, ["GPU-b"])
    change_entries(path, lambda entries: add_entry(entries, first))
    assert read_entries(path) == [first]
    again = make_entry("other-name", "again", "bert-2", IDENTITY, [])
    change_entries(path, lambda entries: add_entry(entries, again))
    assert read_entries(path) == [again]
    second = make_entry("gpu3", "no", "", {**IDENTITY, "gpus": ["GPU-x"]}, [])
    assert len(change_entries(path, lambda entries: add_entry(entries, second))) == 2
    assert describe_entry(first).startswith(f"{FALLEN} (2") and describe_entry(first).endswith(" in run bert)")


@pytest.mark.parametrize("text", ["", "[]", '{"nodes": 3}', "x" * 100])
def test_file_that_is_not_a_list_of_nodes_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad-nodes.json"
    path.write_text(text)
    with pytest.raises(BadNodesError, match="cannot be read"):
        read_entries(path)
    with pytest.raises(BadNodesError, match="cannot be read"):
        change_entries(path, lambda entries: entries)
    assert path.read_text() == text


def test_fields_of_other_types_are_omitted(tmp_path: Path) -> None:
    path = tmp_path / "bad-nodes.json"
    nodes: list[Any] = [{"node": "gpu1", "time": "now", "gpus": [1, "GPU-a"], "reason": None}, {"node": ""}, 7]
    path.write_text(json.dumps({"nodes": nodes}))
    (entry,) = read_entries(path)
    assert (entry["node"], entry["time"], entry["gpus"], entry["reason"]) == ("gpu1", 0.0, ["GPU-a"], "")


@pytest.mark.parametrize(
    ("identity", "is_match"),
    [
        (IDENTITY, True),
        ({"gpus": ["GPU-b"]}, True),  # the GPU is in another machine now
        ({**IDENTITY, "gpus": ["GPU-a"]}, True),  # the broken one is no longer listed
        ({**IDENTITY, "gpus": ["GPU-x", "GPU-y"]}, False),  # the virtual machine has moved
        ({**IDENTITY, "gpus": []}, True),
        ({"serial": "J2000", "machine_id": "4ac3", "gpus": []}, False),  # a clone of its disk
        ({"serial": "", "machine_id": "4ac3", "gpus": []}, True),
        ({}, False),
    ],
)
def test_machine_is_recognized(identity: dict[str, Any], is_match: bool) -> None:
    assert matches(make_entry("gpu3", "", "", IDENTITY, ["GPU-b"]), "gpu3", identity) is is_match


def test_name_identifies_a_machine_only_without_other_identifiers() -> None:
    entry = make_entry("gpu3", "", "", {}, [])
    assert matches(entry, "gpu3", IDENTITY) and not matches(entry, "gpu4", {})


def verdict(**values: Any) -> dict[str, Any]:
    nodes: list[Any] = [{"name": name, "gpus": "", "health": []} for name in ("gpu0", "gpu1")]
    usual = {"run_id": "bert", "state": "failed", "nodes": nodes, "broken": [], "first_failure": None, "attempts": []}
    return {**usual, **values}


def lost(error: str) -> dict[str, Any]:
    return {"first_failure": {"node": "gpu1", "error": error}}


PLAN = {"nodes": [{"name": "gpu0", "identity": None}, {"name": "gpu1", "identity": IDENTITY}]}
FINDING = {"text": FALLEN, "gpu": "GPU-b", "hardware": "yes"}


@pytest.mark.parametrize(
    ("values", "reason", "blamed"),
    [
        ({"nodes": [{"name": "gpu1", "gpus": "", "health": [FINDING]}]}, FALLEN, ["GPU-b"]),
        ({"broken": [{"node": "gpu1", "text": f"gpu1: {FALLEN}"}]}, FALLEN, []),
        ({"nodes": [{"name": "gpu1", "gpus": "GPU 1: GPU is lost", "health": []}]}, "GPU 1: GPU is lost", []),
        (
            lost("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            [],
        ),
        (  # an attempt that was followed by a successful one
            {"state": "succeeded", "attempts": [{}, {}], "broken": [{"node": "gpu1", "text": FALLEN}]},
            FALLEN,
            [],
        ),
    ],
)
def test_verdict_that_blames_hardware_records_the_machine(
    tmp_path: Path, values: dict[str, Any], reason: str, blamed: list[str]
) -> None:
    path = tmp_path / "bad-nodes.json"
    (line,) = record_bad_nodes(path, PLAN, verdict(**values))
    assert line.startswith(f"gpu1 is recorded as bad: {reason}. No run will use it until ")
    (entry,) = read_entries(path)
    assert (entry["node"], entry["reason"], entry["failed_gpus"], entry["run"]) == ("gpu1", reason, blamed, "bert")
    assert (entry["serial"], entry["gpus"]) == ("J1050", ["GPU-a", "GPU-b"])


@pytest.mark.parametrize(
    "values",
    [
        {},
        lost("RuntimeError: CUDA error: unspecified launch failure"),  # more often a bug
        lost("ValueError: loss is nan"),
        {"nodes": [{"name": "gpu1", "gpus": "nvidia-smi ended with exit code 9", "health": []}]},
        {"nodes": [{"name": "gpu1", "gpus": "", "health": [{**FINDING, "hardware": ""}]}]},
        {"state": "succeeded", "broken": [{"node": "gpu1", "text": FALLEN}]},
        {"broken": [{"node": "of-another-run", "text": FALLEN}]},
    ],
)
def test_other_verdicts_record_nothing(tmp_path: Path, values: dict[str, Any]) -> None:
    assert record_bad_nodes(tmp_path / "bad-nodes.json", PLAN, verdict(**values)) == []
    assert list(tmp_path.iterdir()) == []


def test_node_cannot_fill_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad-nodes.json"
    gpus = [f"GPU-{number}" for number in range(1000)]
    health = {
        "identity": {**dict.fromkeys(("serial", "asset", "machine_id"), "S" * 5_000_000), "x": "y" * 5_000_000},
        "gpus": [{"uuid": uuid} for uuid in ["GPU-" + "x" * 5_000_000, "not a GPU", "GPU-a\nb", 7, *gpus]],
    }
    summary = summarize_identity(health)
    assert summary == {"serial": "S" * 100, "asset": "S" * 100, "machine_id": "S" * 100, "gpus": gpus[:64]}
    big = {"serial": "S" * 5_000_000, "gpus": ["GPU-" + "x" * 5_000_000, *gpus]}
    entry = make_entry("gpu1", FALLEN, "bert", big, ["GPU-" + "x" * 5_000_000, *gpus])
    assert (len(entry["serial"]), entry["gpus"], entry["failed_gpus"]) == (100, gpus[:64], gpus[:64])
    uuids = [f"MIG-GPU-{number:052}" for number in range(64)]
    largest = make_entry("n" * 253, "r" * 5000, "b" * 63, {**summary, "gpus": uuids}, uuids)
    change_entries(path, lambda entries: [largest] * 1000)
    assert len(read_entries(path)) == 1000


def test_another_nodes_identifiers_are_not_recorded(tmp_path: Path) -> None:
    """A node that reports another node's identifiers must not exclude that machine."""
    path = tmp_path / "bad-nodes.json"
    victim = {"serial": "J1050", "asset": "i-1", "machine_id": "4ac3", "gpus": ["GPU-a", "GPU-b"]}
    liar = {**victim, "machine_id": "5bd4", "gpus": ["GPU-b", "GPU-z"]}
    plan = {"nodes": [{"name": "gpu0", "identity": victim}, {"name": "gpu1", "identity": liar}]}
    health = [{**FINDING, "gpu": "GPU-b"}]
    record_bad_nodes(path, plan, verdict(nodes=[{"name": "gpu1", "gpus": "", "health": health}]))
    (entry,) = read_entries(path)
    assert (entry["serial"], entry["asset"], entry["machine_id"]) == ("", "", "5bd4")
    assert (entry["gpus"], entry["failed_gpus"]) == (["GPU-z"], [])
    assert matches(entry, "gpu1", liar) and not matches(entry, "gpu0", victim)


@pytest.mark.parametrize("identity", [{**IDENTITY, "gpus": ["GPU-z"]}, {}])
def test_gpu_on_another_node_is_not_blamed(tmp_path: Path, identity: dict[str, Any]) -> None:
    path = tmp_path / "bad-nodes.json"
    plan = {"nodes": [{"name": "gpu0", "identity": {"gpus": ["GPU-b"]}}, {"name": "gpu1", "identity": identity}]}
    record_bad_nodes(path, plan, verdict(nodes=[{"name": "gpu1", "gpus": "", "health": [FINDING]}]))
    (entry,) = read_entries(path)
    assert entry["failed_gpus"] == [] and not matches(entry, "gpu0", {"gpus": ["GPU-b"]})


def test_unwritable_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "bad-nodes.json"
    (line,) = record_bad_nodes(path, PLAN, verdict(broken=[{"node": "gpu1", "text": FALLEN}]))
    assert line.startswith(f"gpu1 could not be recorded as bad: cannot write {path}: ")
    assert not os.path.lexists(path)
