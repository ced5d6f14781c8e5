# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of a run on two nodes with real supervisors: readable while it is active, and removed afterwards."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

parser = pytest.importorskip("prometheus_client.parser")

SMI = """#!/bin/sh
case "$*" in
*--query-gpu=timestamp*) date "+%Y/%m/%d %H:%M:%S.123, 0, 97, 72914, 81559, 64, 641.27, 700.00" ;;
esac
"""
JOB = ["/bin/sh", "-c", "echo step; while [ ! -e go ]; do sleep 0.05; done"]


def make(tmp_path: Path, directory: Path) -> Run:
    ports: Any = {"lifeline_port": free_port(), "master_port": free_port()}
    run = make_run(tmp_path, [JOB] * 2, first_address=174, node_exporter_directory=str(directory), **ports)
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    for plan in run.plans:
        plan["working_directory"] = str(tmp_path)
    run.plans[1].update(gpu_samples=[f"{tmp_path}/nvidia-smi", "--query-gpu=timestamp"], files={"gpus.csv": HEADER})
    return run


def values(path: Path) -> dict[tuple[str, str], float]:
    """Return the values in a file by name and state; {} if the file is missing."""
    if not path.exists():
        return {}
    return {
        (sample.name, sample.labels.get("state", "")): sample.value
        for family in parser.text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def test_each_node_has_a_file_while_the_run_is_active(tmp_path: Path) -> None:
    directory = tmp_path / "collector"
    directory.mkdir()
    run = make(tmp_path, directory)
    files = [directory / f"muster-{run.run_id}-{number}.prom" for number in (0, 1)]
    try:
        run.start()
        eventually(lambda: values(files[0]).get(("muster_run_nodes", "running")) == 2.0)
        eventually(lambda: values(files[1]).get(("DCGM_FI_DEV_GPU_UTIL", "")) == 97.0)
        eventually(lambda: all(values(path).get(("muster_job_running", "")) == 1.0 for path in files))
        assert stat.S_IMODE(files[0].stat().st_mode) == 0o644
        assert ("muster_run_nodes", "running") not in values(files[1])
        assert {path.suffix for path in directory.iterdir()} <= {".prom", ".tmp"}
        (tmp_path / "go").touch()
        run.wait_for("succeeded")
        eventually(lambda: not list(directory.iterdir()))
    finally:
        end_by_force(run)


def test_unwritable_directory_is_reported_once_and_does_not_affect_the_run(tmp_path: Path) -> None:
    run = make(tmp_path, tmp_path / "missing")
    try:
        run.start()
        run.wait_for("running")
        eventually(lambda: sum("no metrics for" in text for text in run.events()) == 2)
        (tmp_path / "go").touch()
        run.wait_for("succeeded")
        texts = [text for text in run.events() if "no metrics for" in text]
        assert len(texts) == 2 and "make the directory writable" in texts[0]
    finally:
        end_by_force(run)
