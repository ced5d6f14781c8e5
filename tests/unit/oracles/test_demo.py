# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo`, the first command that a user types, does what the README promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import free_port

CHECKOUT = Path(__file__).resolve().parents[3]
VENV_STAMP = ".venv/.run-ready"
# Variables that make passes to its children: this test may itself be started by make.
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARGS")
EPOCHS = 6


@pytest.mark.skipif(not (CHECKOUT / VENV_STAMP).exists(), reason="make has not made .venv, which the demo runs in")
def test_the_demo_trains_on_two_nodes_of_this_machine(tmp_path: Path) -> None:
    run_id = f"demo-{os.getpid()}"
    variables = {
        "run_id": run_id,
        "launch_runs_directory": tmp_path / "records",
        "launch_node_directory": tmp_path / "nodes",
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
    }
    clean = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    arguments = " ".join(f"-e {name}={value}" for name, value in variables.items())
    arguments += f""" -e "launch_args='--epochs {EPOCHS}'" """  # instead of 20: each epoch takes one core-second
    node0 = tmp_path / "nodes" / run_id / "node0"
    try:
        completed = subprocess.run(
            # existing environments are left unchanged even if their requirements are newer: tests install nothing
            ["make", f"--old-file={VENV_STAMP}", "demo", f"ARGS={arguments}"],
            cwd=CHECKOUT,
            env={**clean, "ANSIBLE_NOCOLOR": "1"},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
    finally:  # unless it has already exited
        for name in ("local0", "local1"):
            request = {"run_id": run_id, "runs_directory": str(tmp_path / "nodes"), "node": name, "check": False}
            run_stop.stop(request)
    output = completed.stdout
    assert completed.returncode == 0, output
    assert subprocess.run(["make", "--question", VENV_STAMP], cwd=CHECKOUT, env=clean, check=False).returncode == 0, (
        "once"
    )
    assert re.search(rf"^run {run_id} succeeded after \S+: 2 nodes, world size 4$", output, re.MULTILINE), output
    message = dict(re.findall(r"^  (accuracy|samples per second|checkpoint|logs|record): (.+)$", output, re.MULTILINE))
    assert float(message["accuracy"]) > 0.95
    assert float(message["samples per second"]) > 0
    assert (
        message["checkpoint"] == str(node0 / "checkpoints" / "train_ddp.pt") and Path(message["checkpoint"]).is_file()
    )
    assert message["logs"] == f"local0:{node0}"
    assert message["record"] == str(tmp_path / "records" / run_id / "result.json") and Path(message["record"]).is_file()
    assert re.search(rf"^report: {tmp_path}/records/{run_id}/report.html$", output, re.MULTILINE), output
    assert output.rstrip().endswith("/report.html"), "the last line"
    report = json.loads((tmp_path / "records" / run_id / "report.json").read_text())
    assert [(curve["name"], curve["values"]) for curve in report["curves"]] == [("loss", EPOCHS), ("accuracy", EPOCHS)]
    assert (tmp_path / "records" / run_id / "report.html").read_text().count("<svg ") == 2
