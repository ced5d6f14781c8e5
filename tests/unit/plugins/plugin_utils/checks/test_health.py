# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with unhealthy hardware, and machines that are recorded as bad."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import parse_line
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import make_entry
from tests.unit.healthy import GIB, Facts, cluster, findings, nothing, spoilt


def gpu(facts: dict[str, Facts], name: str, **values: Any) -> None:
    facts[name]["health"]["gpus"][1].update(values)


def rows(facts: dict[str, Facts], name: str, **values: Any) -> None:
    facts[name]["health"]["gpus"][1]["rows"].update(values)


def logged(facts: dict[str, Facts], name: str, line: str) -> None:
    error = parse_line(line)
    assert error is not None
    facts[name]["health"]["kernel_log"]["errors"].append({**error._asdict(), "time": time.time() - 90, "count": 1})


def port(facts: dict[str, Facts], name: str, **values: Any) -> None:
    facts[name]["health"]["ports"][0].update(values)


FALLEN = "NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus"


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        (lambda f: logged(f, "node2", FALLEN), [("warning", "gpu-xid", ("node2",))]),
        (lambda f: logged(f, "node2", "NVRM: Xid (PCI:0000:11:00): 31, pid=1, MMU Fault"), []),
        (
            lambda f: logged(f, "node2", "NVRM: Xid (PCI:0000:99:00): 79, lost"),  # nvidia-smi no longer lists it
            [("warning", "gpu-xid", ("node2",))],
        ),
        (lambda f: f["node2"]["health"]["kernel_log"].update(readable=False), []),
        (lambda f: rows(f, "node3", failure=True), [("error", "gpu-memory-rows", ("node3",))]),
        (lambda f: rows(f, "node3", pending=True), [("warning", "gpu-memory-rows", ("node3",))]),
        (lambda f: gpu(f, "node3", rows=None, ecc_aggregate=None), []),
        (lambda f: gpu(f, "node3", ecc_aggregate=10), [("warning", "gpu-memory-history", ("node3",))]),
        (lambda f: gpu(f, "node4", throttling=["power brake"]), [("warning", "gpu-throttled", ("node4",))]),
        (lambda f: gpu(f, "node4", pcie_width=8), [("warning", "gpu-pcie-narrow", ("node4",))]),
        (
            lambda f: f["node1"]["health"]["nvlinks"][0].update(active=list(range(17)), inactive=[17]),
            [("warning", "nvlink-down", ("node1",))],
        ),
        (lambda f: f["node1"]["health"]["nvlinks"][0].update(errors=100), [("warning", "nvlink-errors", ("node1",))]),
        (lambda f: port(f, "node1", counters={"link_downed": 10}), [("warning", "rdma-errors", ("node1",))]),
        (lambda f: port(f, "node1", rate="200 Gb/sec (2X NDR)"), [("warning", "rdma-rate", ("node1",))]),
        (lambda f: port(f, "node1", state="DOWN", counters={"link_downed": 10}), []),
        (lambda f: f["node2"]["health"]["memory"].update(available_bytes=GIB), [("warning", "memory-low", ("node2",))]),
        (
            lambda f: f["node2"]["health"]["memory"].update(available_bytes=6 * GIB, swap_free_bytes=GIB),
            [("warning", "memory-low", ("node2",))],
        ),
    ],
)
def test_problem_on_a_node_is_reported(spoil: Any, result: Any) -> None:
    assert spoilt(spoil, gpu_count=2) == result


def test_error_is_reported_with_the_gpu_and_the_action_recommended_by_nvidia() -> None:
    facts = copy.deepcopy(cluster(2, 2))
    logged(facts, "node2", FALLEN)
    (finding,) = findings(facts)
    assert finding.problem.startswith(
        "0:01:30 ago, the driver reported Xid 79 on GPU 1 (GPU has fallen off the bus); NVIDIA: "
    )
    assert "-e preflight_skip=gpu-xid" in finding.remedy or "--preflight" in finding.remedy


def entry(facts: dict[str, Facts], name: str, blamed: list[str] | None = None, **identity: Any) -> dict[str, Any]:
    health = facts[name]["health"]
    machine = {**health["identity"], "gpus": [gpu["uuid"] for gpu in health["gpus"]], **identity}
    return dict(make_entry(name, "Xid 79 on GPU 1", "bert", machine, blamed or []))


def test_bad_machine_is_refused_under_any_name() -> None:
    facts = copy.deepcopy(cluster(4, 2))
    recorded = [entry(facts, "node3")]
    (finding,) = findings(facts, bad_nodes=recorded)
    assert (finding.severity, finding.id, finding.nodes) == ("error", "bad-node", ("node3",))
    assert "Xid 79 on GPU 1 (" in finding.problem and " in run bert)" in finding.problem
    assert "forgive" in finding.remedy and "node3" in finding.remedy
    facts["node2"]["health"], facts["node3"]["health"] = facts["node3"]["health"], facts["node2"]["health"]
    assert [finding.nodes for finding in findings(facts, bad_nodes=recorded)] == [("node2",)]
    assert findings(facts, bad_nodes=recorded, skip=["bad-node"]) == []


def test_other_hardware_with_the_same_disk_is_accepted() -> None:
    facts = copy.deepcopy(cluster(2, 2))
    recorded = [entry(facts, "node2")]
    for device in facts["node2"]["health"]["gpus"]:
        device["uuid"] = f"{device['uuid']}-of-another-host"
    assert findings(facts, bad_nodes=recorded) == []
    facts["node2"]["health"]["gpus"] = []  # all are lost, so now the serial number decides
    assert [finding.id for finding in findings(facts, bad_nodes=recorded)] == ["bad-node"]


def test_serial_number_shared_by_several_nodes_identifies_no_node() -> None:
    facts = copy.deepcopy(cluster(3))
    for name in facts:
        facts[name]["health"]["identity"] = {"serial": "of the host", "asset": "", "machine_id": f"id-of-{name}"}
    recorded = [entry(facts, "node2", serial="")]
    assert [finding.nodes for finding in findings(facts, bad_nodes=recorded)] == [("node2",)]
    assert findings(facts, bad_nodes=[entry(facts, "node2", machine_id="")]) == []


def test_gpu_that_the_job_does_not_use_is_ignored() -> None:
    facts = copy.deepcopy(cluster(2, 2))
    for device, health_gpu in zip(facts["node2"]["gpus"]["devices"], facts["node2"]["health"]["gpus"], strict=True):
        device["uuid"] = health_gpu["uuid"]
    recorded = [entry(facts, "node2", blamed=["GPU-node2-1"])]
    options: dict[str, Any] = {"bad_nodes": recorded, "nproc_per_node": 1}
    assert "bad-node" not in [finding.id for finding in findings(facts, gpus=[0], **options)]
    assert "bad-node" in [finding.id for finding in findings(facts, gpus=[1], **options)]
