# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch size search with simulated launches: the record of each probe, and the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import BatchSearch, FitJob
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import SearchSettings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError
from tests.unit.plugins.plugin_utils.report.records import write_record

SEARCH = SearchSettings(start=8, multiple=8, max_batch=4096, margin=0.0)
JOB = FitJob(args=["--batch", "{batch_size}"], confirm_args=["--batch={batch_size}", "--long"], timeout=60.0)
OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


class Cluster:
    """A simulated cluster: above a limit, the second rank of a run fails, by default for lack of memory."""

    def __init__(self, runs: Path, limit: int) -> None:
        self.runs, self.limit = runs, limit
        self.interrupted = self.late = False
        self.error = OOM
        self.refused = ""
        self.log = ""
        self.launched: list[str] = []
        self.args: list[Any] = []
        self.stopped: list[str] = []

    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult:
        assert timeout == 60.0
        self.launched.append(run_id)
        unset = ("launch_restart_min_nodes", "launch_restart_wait", "launch_debug_rank")
        assert variables["launch_restarts"] == 0 and not any(variables[name] for name in unset)
        self.args.append(variables["launch_args"])
        if self.refused:
            return PlaybookResult(2, [self.refused], 1.0, False)
        batch = int(re.findall("[0-9]+", " ".join(variables["launch_args"]))[0])
        record = write_record(self.runs, run_id, nodes=2)
        result = json.loads((record / "result.json").read_text())
        if batch <= self.limit:
            result["job_results"] = {"samples_per_second": 10.0 * batch, "peak_memory_mib": 1000.0 + 100 * batch}
        else:
            ranks = [{"rank": 1, "exit_code": 1, "error": self.error}]
            failure = {"node": "gpu0", "rank": 0, "error": "RuntimeError: Connection closed by peer"}
            nodes = [{"name": "gpu0"}, {"name": "gpu1", "ranks": ranks}]
            result |= {"state": "failed", "first_failure": failure, "nodes": nodes}
        (record / "result.json").write_text(json.dumps(result))
        return PlaybookResult(0 if batch <= self.limit else 2, [], 40.0, self.late)

    def stop(self, run_id: str) -> PlaybookResult:
        self.stopped.append(run_id)
        return PlaybookResult(0, [], 1.0, False)

    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> PlaybookResult:
        assert name == "logs" and variables["fetch"] is True
        directory = self.runs / variables["run_id"] / "logs" / "node1" / "ranks" / "1"
        directory.mkdir(parents=True)
        (directory / "stderr.log").write_text(self.log)
        return PlaybookResult(0, [], 1.0, False)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "runs", 40)


def fit(cluster: Cluster, messages: list[str] | None = None, common: str = "") -> BatchSearch:
    return BatchSearch(
        cluster.runs / "fit", cluster.runs, cluster, (messages if messages is not None else []).append, common
    )


def test_largest_batch_is_determined_and_confirmed_by_a_longer_run(cluster: Cluster) -> None:
    messages: list[str] = []
    state = fit(cluster, messages).search(JOB, SEARCH)
    assert state["result"] == 40 and state["fastest"] == 40
    assert cluster.args[-1] == ["--batch=40", "--long"] and cluster.args[0] == ["--batch", "8"]
    assert (state["program"], state["nnodes"]) == ("train.py", 2)
    assert messages[0] == "probe 1 of about 6: batch 8" and ", 40 s each: " in messages[2]
    assert [item["memory_mib"] for item in state["history"]][:2] == [1800.0, 2600.0]
    assert state["history"][0]["total_mib"] == 40960, "of the node that has least"


def test_interrupted_search_resumes(cluster: Cluster) -> None:
    uninterrupted = fit(Cluster(cluster.runs.parent / "whole", 40)).search(JOB, SEARCH)
    cluster.interrupted = True
    with pytest.raises(ExperimentError, match="interrupted: .* was stopped on all nodes"):
        fit(cluster).search(JOB, SEARCH)
    assert json.loads((cluster.runs / "fit" / "fit.json").read_text())["running"] == "fit-b8"
    cluster.interrupted = False
    state = fit(cluster).search(JOB, SEARCH)
    assert cluster.stopped == ["fit-b8"] and cluster.launched[1] == "fit-b8-2", "a name is never used twice"
    assert [item["batch"] for item in state["history"]] == [item["batch"] for item in uninterrupted["history"]]
    count = len(cluster.launched)
    assert fit(cluster).search(JOB, SEARCH)["result"] == 40 and len(cluster.launched) == count


def test_failure_other_than_out_of_memory_ends_the_search(cluster: Cluster) -> None:
    cluster.limit, cluster.error = 0, "NameError: name 'modle' is not defined"
    with pytest.raises(ExperimentError, match="fit-b8 failed for a reason other than a lack of memory: RuntimeError"):
        fit(cluster).search(JOB, SEARCH)
    assert cluster.launched == ["fit-b8"]
    cluster.limit = 40
    cluster.error = OOM
    assert fit(cluster).search(JOB, SEARCH)["result"] == 40, "once the script is right it continues"


def test_out_of_memory_is_detected_in_the_log_without_an_error_file(cluster: Cluster) -> None:
    cluster.error, cluster.log = "exit code 1", f"torch.{OOM}\n"
    assert fit(cluster).search(JOB, SEARCH)["result"] == 40


def test_ambiguous_error_is_out_of_memory_only_if_a_smaller_batch_ran(cluster: Cluster) -> None:
    cluster.error = "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate(handle)"
    assert fit(cluster).search(JOB, SEARCH)["result"] == 40
    second = Cluster(cluster.runs.parent / "other", 0)
    second.error = cluster.error
    with pytest.raises(ExperimentError, match="for a reason other than a lack of memory"):
        fit(second).search(JOB, SEARCH)


def test_search_result_is_0_if_batch_1_does_not_fit(cluster: Cluster) -> None:
    cluster.limit = 0
    state = fit(cluster).search(JOB, SEARCH)
    assert state["result"] == 0 and cluster.args[-1] == ["--batch", "1"]


def test_launches_that_time_out_or_are_refused_end_the_search(cluster: Cluster) -> None:
    cluster.late = True
    with pytest.raises(ExperimentError, match="ran for 60 s and was stopped: give the script a step limit"):
        fit(cluster).search(JOB, SEARCH)
    cluster.late, cluster.refused = False, "nothing was started: busy on gpu1"
    with pytest.raises(ExperimentError, match="fit-b8-2 could not be launched: nothing was started: busy on gpu1"):
        fit(cluster).search(JOB, SEARCH)


def test_changed_search_settings_are_refused_under_the_same_name(cluster: Cluster) -> None:
    fit(cluster).search(JOB, SEARCH)
    with pytest.raises(ExperimentError, match="fit is a search with different settings"):
        fit(cluster).search(JOB, {**SEARCH, "start": 16})


def test_changed_job_is_refused_and_earlier_result_is_labeled(cluster: Cluster) -> None:
    messages: list[str] = []
    fit(cluster, messages, common="image one").search(JOB, SEARCH)
    assert not any("earlier" in line for line in messages)
    assert "image one" not in (cluster.runs / "fit" / "fit.json").read_text()
    with pytest.raises(
        ExperimentError, match="fit is a search with a different job or on different nodes: choose another name"
    ):
        fit(cluster, common="image two").search(JOB, SEARCH)
    messages.clear()
    fit(cluster, messages, common="image one").search(JOB, SEARCH)
    assert messages == ["nothing to launch: this is the result of an earlier search"]


def test_state_file_of_another_version_is_refused(cluster: Cluster) -> None:
    (cluster.runs / "fit").mkdir(parents=True)
    (cluster.runs / "fit" / "fit.json").write_text('{"version": 1}')
    with pytest.raises(ExperimentError, match="fit.json was written by a different version: choose another name"):
        fit(cluster).search(JOB, SEARCH)
