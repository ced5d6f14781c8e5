# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of all nodes reach the node that leads the run, with real supervisors and a stand-in for nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run import dispatch
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER
from ansible_collections.muster.training.plugins.plugin_utils._page.run_view import RunView, is_news
from tests.unit.supervised import end_by_force, eventually, free_port, make_run

SMI = """#!/bin/sh
case "$*" in
*--query-gpu=timestamp*) date "+%Y/%m/%d %H:%M:%S.123, 0, 97, 72914, 81559, 64, 641.27, 700.00" ;;
esac
"""
JOB = ["/bin/sh", "-c", "echo 'step 1: loss 0.5'; echo needle; while [ ! -e go ]; do sleep 0.05; done"]


def test_samples_of_all_nodes_are_on_the_node_that_leads_the_run(tmp_path: Path) -> None:
    ports: Any = {"lifeline_port": free_port(), "master_port": free_port()}
    run = make_run(tmp_path, [JOB] * 2, first_address=171, **ports)
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    for plan in run.plans:
        plan["working_directory"] = str(tmp_path)
    run.plans[1].update(gpu_samples=[f"{tmp_path}/nvidia-smi", "--query-gpu=timestamp"], files={"gpus.csv": HEADER})
    names = [plan["node"]["name"] for plan in run.plans]
    view = RunView(run.run_id, run.plans[0])
    cursors: dict[str, Any] = {"cursors": {}, "sample_cursor": [0, 0, 0]}

    def has_samples_of_both_nodes() -> bool:
        request = run.request(0, operation="page", wait=0, local_rank=0, attempt=0, **cursors)
        reply = dispatch.main(request)
        assert is_news(reply), reply
        cursors.update(cursors=reply["cursors"], sample_cursor=reply["sample_cursor"])
        view.take(reply)
        newest = view.samples.newest
        return set(newest) == set(names) and newest[names[1]]["utilization"] == 97.0

    try:
        run.start()
        run.wait_for("running")
        eventually(has_samples_of_both_nodes)
        eventually(
            lambda: has_samples_of_both_nodes() and view.output_after(0)["lines"] == ["step 1: loss 0.5", "needle"]
        )
        assert view.samples.newest[names[0]]["utilization"] is None and view.samples.newest[names[0]]["disk"]
        assert not (run.node(1) / "samples.jsonl").exists()
        (match,) = dispatch.main(run.request(1, operation="search", text="NEEDLE"))["matches"]
        assert (match["rank"], match["line"]) == (run.plans[1]["node"]["first_rank"], "needle")
        (tmp_path / "go").touch()
        run.wait_for("succeeded")
        has_samples_of_both_nodes()
        assert view.snapshot(0)["state"] == "succeeded"
    finally:
        end_by_force(run)
