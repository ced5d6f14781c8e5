# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sweep with simulated launches: the record of each run, and the next step."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import SearchSettings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import SweepState, Variant
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.sweep import (
    Sweep,
    SweepRequest,
)
from tests.unit.plugins.plugin_utils.report.records import write_record

OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


class Cluster:
    """A simulated cluster: runs of some variants fail, and a batch above the limit runs out of memory."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.wrong: set[str] = set()
        self.interrupt_at = self.late_at = self.refused_at = ""
        self.interrupted = False
        self.limit = 40
        self.launched: list[str] = []
        self.launch_variables: list[Mapping[str, Any]] = []
        self.timeouts: list[float] = []
        self.stopped: list[str] = []
        self.together: threading.Barrier | None = None  # a barrier that all launches pass together

    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult:
        if self.together is not None:
            self.together.wait(60)
        self.launched.append(run_id)
        self.launch_variables.append(variables)
        self.timeouts.append(timeout)
        self.interrupted = run_id == self.interrupt_at
        if run_id == self.refused_at:
            return PlaybookResult(2, ["nothing was started: busy on gpu1"], 3.0, False)
        batch = next((int(word) for word in variables.get("launch_args", []) if word.isdecimal()), 0)
        reason = OOM if batch > self.limit else "ValueError: no such strategy" if variables["of"] in self.wrong else ""
        record = write_record(self.runs, run_id, nodes=variables["nnodes"], seconds=60)
        if reason:
            result = json.loads((record / "result.json").read_text())
            failure = {"node": "gpu0", "rank": 0, "error": reason}
            ranks = [{"rank": 0, "exit_code": 1, "error": reason}]
            result |= {"state": "failed", "first_failure": failure, "nodes": [{"name": "gpu0", "ranks": ranks}]}
            (record / "result.json").write_text(json.dumps(result))
        return PlaybookResult(2 if reason else 0, [], 40.0, run_id == self.late_at)

    def stop(self, run_id: str) -> PlaybookResult:
        self.stopped.append(run_id)
        return PlaybookResult(0, [], 1.0, False)

    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> PlaybookResult:
        return PlaybookResult(0, [], 1.0, False)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "runs")


def variant(name: str, nnodes: int = 1, **more: Any) -> Variant:
    variables = {"of": name, "nnodes": nnodes, **more}
    return {"name": name, "variables": variables, "fit_args": ["--batch", "{batch_size}"], "kind": name[0]}


ALL = [variant("a1"), variant("b"), variant("a2", 2)]


def sweep(
    cluster: Cluster, variants: list[Variant], messages: list[str] | None = None, common: str = "", **more: Any
) -> SweepState:
    expected = {"variants": variants, "repeats": 1, "timeout": 0.0, "search": None, "fit_timeout": 60.0, **more}
    notify = (messages if messages is not None else []).append
    return Sweep(cluster.runs / "s", cluster.runs, cluster, notify, common).run(SweepRequest(**expected))


def test_variants_run_in_turn_and_a_failed_one_is_skipped(cluster: Cluster) -> None:
    cluster.wrong, output = {"b"}, list[str]()
    state = sweep(cluster, ALL, output)
    assert output == [
        "variant 1 of 3: a1",
        "variant 2 of 3, about 40 s each: b",
        "b failed and is skipped: gpu0, rank 0: ValueError: no such strategy",
        "variant 3 of 3, about 40 s each: a2",
    ]
    assert cluster.launched == ["s-a1", "s-b", "s-a2"] and cluster.launch_variables[2]["nnodes"] == 2
    (table,) = state["tables"]
    assert {row["variant"]: row["efficiency"] for row in table["rows"]} == {"a1": 1.0, "a2": 0.5, "b": None}
    assert table["rows"][0]["cost"] == pytest.approx(10.0 / 60), "10 USD an hour, and a minute"
    assert "b failed: gpu0, rank 0" in (cluster.runs / "s" / "sweep.md").read_text()


def test_interrupted_sweep_resumes_and_retries_failed_variants(cluster: Cluster) -> None:
    cluster.wrong, cluster.interrupt_at = {"b"}, "s-a2"
    with pytest.raises(ExperimentError, match="interrupted: s-a2 was stopped on all nodes; run the same command again"):
        sweep(cluster, ALL)
    assert json.loads((cluster.runs / "s" / "sweep.json").read_text())["running"] == ["s-a2"]
    cluster.wrong, cluster.launched = set(), []
    state = sweep(cluster, ALL)
    assert cluster.stopped == ["s-a2"] and cluster.launched == ["s-b-2", "s-a2-2"], "a name is never used twice"
    assert all(row["succeeded"] for row in state["tables"][0]["rows"]) and state["running"] == []
    cluster.launched = []
    assert sweep(cluster, ALL)["tables"] == state["tables"] and cluster.launched == []


def test_changed_variant_is_relaunched_and_its_secrets_not_stored(cluster: Cluster) -> None:
    sweep(cluster, ALL)
    cluster.launched = []
    sweep(cluster, [variant("a1", launch_environment={"TOKEN": "s3cret"}), *ALL[1:], variant("c")])
    assert cluster.launched == ["s-a1-2", "s-c"]
    assert "s3cret" not in (cluster.runs / "s" / "sweep.json").read_text()


def test_changed_job_is_relaunched_and_earlier_results_are_labeled(cluster: Cluster) -> None:
    messages: list[str] = []
    sweep(cluster, ALL, messages, common="image one")
    assert not any("earlier" in line for line in messages)
    messages.clear()
    cluster.launched = []
    sweep(cluster, ALL, messages, common="image one")
    assert cluster.launched == [] and messages == ["nothing to launch: these are the results of an earlier sweep"]
    sweep(cluster, ALL, common="image two")
    assert cluster.launched == ["s-a1-2", "s-b-2", "s-a2-2"]


def test_repeats_alternate_and_a_failed_variant_is_not_repeated(cluster: Cluster) -> None:
    cluster.wrong, output = {"b"}, list[str]()
    sweep(cluster, ALL, output, repeats=2)
    assert cluster.launched == ["s-a1", "s-b", "s-a2", "s-a1-2", "s-a2-2"]
    assert output[-1] == "variant 3 of 3, repeat 2 of 2, about 40 s each: a2"


def test_largest_batch_of_each_variant_is_searched_then_measured(cluster: Cluster) -> None:
    messages: list[str] = []
    search = SearchSettings(start=32, multiple=8, max_batch=64, margin=0.0)
    state = sweep(cluster, [variant("a1")], messages, search=search)
    assert cluster.launched[0] == "s-a1" and cluster.launched[1] == "s-a1-fit-b32"
    assert cluster.launched[-1] == "s-a1-largest" and cluster.launch_variables[-1]["launch_args"] == ["--batch", "40"]
    assert cluster.launch_variables[1]["of"] == "a1", "the variant's settings are those of its search"
    assert any(line.startswith("variant 1 of 1, a1: probe 2 of about") for line in messages), messages
    assert [table["batch"] for table in state["tables"]] == ["same", "largest"]
    cluster.launched = []
    assert sweep(cluster, [variant("a1")], search=search)["tables"] == state["tables"] and cluster.launched == []


def test_variant_without_a_fitting_batch_is_still_compared_at_the_same_batch(cluster: Cluster) -> None:
    cluster.limit = 0
    state = sweep(cluster, [variant("a1")], search=SearchSettings(start=1, multiple=1, max_batch=8, margin=0.0))
    assert [row["reason"] for table in state["tables"] for row in table["rows"]] == ["", "no batch fits"]


def test_interrupt_during_a_batch_search_ends_the_sweep(cluster: Cluster) -> None:
    cluster.interrupt_at = "s-a1-fit-b32"
    search = SearchSettings(start=32, multiple=8, max_batch=64, margin=0.0)
    with pytest.raises(ExperimentError, match="interrupted: s-a1-fit-b32 was stopped on all nodes"):
        sweep(cluster, [variant("a1")], search=search)
    assert sweep(cluster, [variant("a1")], search=search)["tables"][1]["rows"][0]["succeeded"]
    assert "s-a1-fit-b32" in cluster.stopped


def test_launches_that_time_out_or_are_refused_are_skipped(cluster: Cluster) -> None:
    cluster.late_at, cluster.refused_at = "s-a1", "s-b"
    rows = {row["variant"]: row["reason"] for row in sweep(cluster, ALL, timeout=30.0)["tables"][0]["rows"]}
    assert rows["a1"] == "it ran for 40 s and was stopped: raise sweep_timeout, or give it less work to do"
    assert rows["b"] == "it was not launched: nothing was started: busy on gpu1" and rows["a2"] == ""


@pytest.mark.parametrize("text", ["[]", '{"version": 1}', '{"version": 2}'])
def test_sweep_file_of_another_version_is_refused(cluster: Cluster, text: str) -> None:
    (cluster.runs / "s").mkdir(parents=True)
    (cluster.runs / "s" / "sweep.json").write_text(text)
    with pytest.raises(
        ExperimentError, match=r"sweep.json was written by a different version: choose another name with -e run_id=NAME"
    ):
        sweep(cluster, ALL)


def test_launch_without_a_timeout_has_no_time_limit(cluster: Cluster) -> None:
    sweep(cluster, ALL[:1])
    sweep(cluster, ALL[1:2], timeout=30.0)
    assert cluster.timeouts == [math.inf, 30.0]


def test_variants_wait_in_the_queue_together(cluster: Cluster) -> None:
    cluster.together, cluster.wrong = threading.Barrier(len(ALL)), {"b"}
    state = sweep(cluster, ALL, parallel=len(ALL))
    assert sorted(cluster.launched) == ["s-a1", "s-a2", "s-b"]
    assert {row["variant"]: row["succeeded"] for row in state["tables"][0]["rows"]} == {
        "a1": True,
        "a2": True,
        "b": False,
    }
    assert state == json.loads((cluster.runs / "s" / "sweep.json").read_text()) and state["running"] == []


def test_time_in_the_queue_is_not_counted(cluster: Cluster) -> None:
    sweep(cluster, ALL[:1], timeout=90.0, parallel=1)
    assert cluster.timeouts == [math.inf] and cluster.launch_variables[0]["launch_slurm_time"] == "2"


def test_no_variant_begins_after_an_interrupt(cluster: Cluster) -> None:
    cluster.interrupted = True
    with pytest.raises(ExperimentError, match="interrupted; run the same command again to resume"):
        sweep(cluster, ALL, parallel=2)
    assert cluster.launched == []
