# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each example, launched from its job.yml on two nodes that are this machine, trains and leaves a report with its
curves, its figures and the command that launches it again; a browser shows what is meant."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.support import browser
from tests.support.browser import Browser
from tests.unit.oracles.test_report_page import AXES, VIEWS, check_view
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import CHECKOUT, typed

pytestmark = pytest.mark.thorough  # test_demo.py trains the digits example in every run of the tests
HUGGING_FACE = sorted((CHECKOUT / "build").glob("transformers-*"))


class Expected(NamedTuple):
    """The expected report on an example. curves: the number of values in each; learns: the curve that falls."""

    curves: dict[str, int]
    learns: str
    metrics: set[str]


EXAMPLES = {
    "ddp": Expected(
        {"loss": 20, "accuracy": 20}, "loss", {"step", "loss", "accuracy", "samples_per_second", "checkpoint"}
    ),
    "hugging_face_deepspeed": Expected(
        {"loss": 10, "grad_norm": 10, "learning_rate": 10},
        "loss",
        {"accuracy", "loss", "samples_per_second", "checkpoint"},
    ),
    "lightning": Expected(
        {"loss": 10, "accuracy": 10, "samples_per_second": 10},
        "loss",
        {"accuracy", "samples_per_second", "checkpoint"},
    ),
    "strategies": Expected(
        {"loss": 50},
        "loss",
        {"step", "loss", "samples_per_second", "batch_size", "global_batch_size", "peak_memory_mib"},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_trains_and_writes_its_report(tmp_path: Path, name: str) -> None:
    libraries: list[str] = []
    if name == "hugging_face_deepspeed" and importlib.util.find_spec("transformers") is None:
        if not HUGGING_FACE:
            pytest.skip("make test-all has not installed transformers into build")
        libraries = [str(HUGGING_FACE[-1])]
    environment = {"PYTHONPATH": os.pathsep.join(libraries)} if libraries else {}
    two_nodes(tmp_path, 20, "ab", launch_environment=environment, launch_skip=[], node_price_per_hour=2)
    job = yaml.safe_load((CHECKOUT / "examples" / name / "job.yml").read_text())["job"]
    # copying code from node to node needs ssh, which molecule's scenario `code` tests
    job["working_directory"] = str(CHECKOUT / "examples" / name / job.pop("code"))
    (tmp_path / "job.yml").write_text(json.dumps({"job": job}))
    run_id = f"{name.replace('_', '-')}-{os.getpid()}"  # it alone determines the name of its temporary directory
    text = f"ansible-playbook muster.training.launch -i machines.yml -e @job.yml -e run_id={run_id}"
    try:
        completed = typed(tmp_path, text.split())
    finally:
        for node in "ab":
            run_stop.stop({"run_id": run_id, "runs_directory": f"{tmp_path}/nodes", "node": node, "check": False})
    assert completed.returncode == 0, completed.stdout
    record = tmp_path / "runs" / run_id
    report = json.loads((record / "report.json").read_text())
    assert (report["state"], report["world_size"], report["findings"]) == ("succeeded", 2, [])
    expected = EXAMPLES[name]
    curves = {curve["name"]: curve for curve in report["curves"] if curve["values"] > 1}
    assert {item: curve["values"] for item, curve in curves.items()} == expected.curves
    assert curves[expected.learns]["last"] < curves[expected.learns]["first"]
    assert {item["name"] for item in report["metrics"]} == expected.metrics
    assert report["samples_per_second"] > 0 and report["cost"]["per_1000_samples"] > 0
    again = json.loads(shlex.split(report["repeat"])[-1])
    assert (again["launch_script"], again["launch_args"]) == (job["script"], shlex.split(job["args"]))
    assert again["launch_launcher"] == job.get("launcher", "torchrun")
    page = record / "report.html"
    assert page.read_text().count("<svg ") == len(expected.curves)
    if browser.program() is not None and AXES:
        with Browser() as chromium:
            for width, dark in VIEWS:
                check_view(chromium, page, width, dark)
