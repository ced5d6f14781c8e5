# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics for node_exporter, read by Prometheus's own client library and by promtool, and the dashboard."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.metrics_format import METRICS, node_samples, render

parser = pytest.importorskip("prometheus_client.parser")

CHECKOUT = Path(__file__).resolve().parents[5]
DASHBOARD = CHECKOUT / "examples" / "metrics" / "grafana_dashboard.json"
METRICS_PAGE = CHECKOUT / "docs" / "metrics.md"
PROMTOOL = CHECKOUT / "build" / "promtool" / "usr" / "bin" / "promtool"
GPU = {
    "index": 1,
    "utilization_percent": 97.0,
    "memory_used_mib": 1024.0,
    "memory_total_mib": 4096.0,
    "temperature_celsius": 64.0,
    "power_watts": None,
}
SAMPLE: dict[str, Any] = {
    "gpus": [GPU],
    "memory_used": 1.5e9,
    "memory_total": 4e9,
    "disk_free": 1e9,
    "disk_total": None,
}
OTHER_VALUES = [
    ("muster_job_running", {}, 1.0),
    ("muster_job_duration_seconds_total", {}, 12.25),
    ("muster_job_attempt", {}, 0.0),
    ("muster_job_price_dollars_per_hour", {}, 2.5),
    ("muster_node_health_problems", {}, 0.0),
    ("muster_run_silent_seconds", {}, 3.0),
    ("muster_run_nodes", {"state": "lost"}, 1.0),
    ("muster_run_nodes", {"state": "running"}, 3.0),
]
LABELS = {"muster_run_name": "first", "Hostname": "gpu1"}


def read(text: str) -> dict[tuple[str, str], float]:
    """Return the values that Prometheus's library reads, by name and the labels that differ."""
    return {
        (sample.name, sample.labels.get("gpu", "") or sample.labels.get("state", "")): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_the_names_units_and_values_of_dcgm_exporter_and_dstack() -> None:
    values = read(render([*node_samples(SAMPLE), *OTHER_VALUES], LABELS))
    assert values["DCGM_FI_DEV_GPU_UTIL", "1"] == 97.0
    assert values["DCGM_FI_DEV_FB_USED", "1"] == 1024.0
    assert values["DCGM_FI_DEV_FB_FREE", "1"] == 3072.0
    assert values["muster_job_gpu_usage_ratio", "1"] == pytest.approx(0.97)
    assert values["muster_job_gpu_memory_total_bytes", "1"] == 4096 * 2**20
    assert values["muster_run_nodes", "running"] == 3.0
    assert values["muster_job_duration_seconds_total", ""] == 12.25
    assert ("DCGM_FI_DEV_POWER_USAGE", "1") not in values  # the driver omits this value
    assert ("muster_node_disk_total_bytes", "") not in values


def test_each_metric_has_a_type_and_a_description() -> None:
    families = list(parser.text_string_to_metric_families(render([(name, {}, 1.0) for name in METRICS], LABELS)))
    assert len(families) == len(METRICS)
    for family in families:
        assert family.documentation.endswith(".")
        assert family.type == ("counter" if family.samples[0].name.endswith("_total") else "gauge")


def test_hostile_labels_and_values_are_escaped() -> None:
    text = render(
        [("muster_job_running", {"state": 'a"} 5\nevil{x="\\'}, float("inf"))], {"muster_run_name": "é" * 500}
    )
    (family,) = parser.text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.labels["state"] == 'a"} 5\nevil{x="\\'
    assert sample.value != sample.value  # NaN
    assert len(sample.labels["muster_run_name"]) == 200


@pytest.mark.skipif(not PROMTOOL.exists(), reason="make has not extracted promtool into build")
def test_promtool_reports_no_problems() -> None:
    text = render(
        [*node_samples({**SAMPLE, "gpus": [{**GPU, "power_watts": 300.0}], "disk_total": 2e9}), *OTHER_VALUES], LABELS
    )
    completed = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=600
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


def test_the_dashboard_shows_only_metrics_that_exist() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["title"] and dashboard["schemaVersion"] >= 36
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    names = set()
    for panel in panels:
        assert panel["title"] and panel["targets"] and panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            names |= set(re.findall(r"(?:DCGM_FI_DEV|muster)_[A-Za-z_]+(?=\{)", target["expr"]))
    assert names <= set(METRICS) and len(names) >= 10


def silence_expressions() -> list[str]:
    """Return the expressions for the silence of a run's nodes in the documented alert and the dashboard."""
    rule = re.search(r"expr: (.*muster_run_silent_seconds\)) > 1800", METRICS_PAGE.read_text())
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"] if "silent" in target["expr"]]
    assert rule is not None and len(expressions) == 1
    return [rule[1], expressions[0].replace('{muster_run_name=~"$run"}', "")]


def test_a_run_counts_as_silent_only_if_all_its_nodes_are() -> None:
    """In most jobs, only rank 0 prints, so all other nodes are always silent."""
    assert set(silence_expressions()) == {"min by (muster_run_name) (muster_run_silent_seconds)"}


@pytest.mark.skipif(not PROMTOOL.exists(), reason="make has not extracted promtool into build")
def test_the_documented_alert_fires_only_when_the_whole_run_is_silent(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(groups:\n.*?)```", METRICS_PAGE.read_text(), re.DOTALL)
    assert block is not None
    (tmp_path / "rules.yml").write_text(block[1])
    series = 'muster_run_silent_seconds{muster_run_name="%s",Hostname="%s"}'
    inputs = [
        {"series": series % (run, node), "values": f"{seconds}x10"}
        for run, node, seconds in [
            ("busy", "gpu0", 0),
            ("busy", "gpu1", 5000),
            ("dead", "gpu0", 4000),
            ("dead", "gpu1", 5000),
        ]
    ]
    expected = [{"exp_labels": {"muster_run_name": "dead"}}]
    test = {
        "interval": "1m",
        "input_series": inputs,
        "alert_rule_test": [{"eval_time": "5m", "alertname": "TrainingRunSilent", "exp_alerts": expected}],
    }
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [test]}))
    completed = subprocess.run(
        [str(PROMTOOL), "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
