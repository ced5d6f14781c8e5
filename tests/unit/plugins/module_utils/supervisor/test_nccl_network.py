# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network that NCCL uses, from NCCL logs, and in runs of real supervisors with a fake sysfs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._supervisor import stack_collector
from ansible_collections.muster.training.plugins.module_utils._supervisor.health import nccl_network
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

PREFIX = "gpu1:4711:4802 [0] NCCL INFO "
INFINIBAND = f"""gpu1:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>
{PREFIX}NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
{PREFIX}NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.4<0>
{PREFIX}Using network IB
{PREFIX}Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0/GDRDMA
"""
NO_DEVICE = f"""{PREFIX}NET/IB : No device found.
{PREFIX}NET/Socket : Using [0]eth0:10.0.0.4<0>
{PREFIX}Using network Socket
"""
NO_LIBRARY = f"""{PREFIX}Failed to open libibverbs.so[.1]
{PREFIX}NET/Socket : Using [0]eth0:10.0.0.4<0> [1]eth1:10.0.1.4<0>
"""
NEWEST = f"""{PREFIX}NCCL_IB_DISABLE set by environment to 1.
{PREFIX}NET/Socket : Using [0]eth0:10.0.0.4<0>
{PREFIX}Initialized NET plugin Socket
{PREFIX}Assigned NET plugin Socket to comm
"""
PORT = {"name": "mlx5_0/1", "driver": "mlx5_core"}
EFA = {"name": "rdmap0s6/1", "driver": "efa"}


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        (INFINIBAND, {"IB"}),
        (NO_DEVICE, {"Socket"}),
        (NO_LIBRARY, {"Socket"}),
        (NEWEST, {"Socket"}),
        (f"{PREFIX}Using network AWS Libfabric\n", {"AWS Libfabric"}),
        (f"{PREFIX}Assigned NET plugin IBext_v10 to comm\n", {"IBext_v10"}),
        (f"{PREFIX}Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n", {"Socket"}),
        (f"{PREFIX}Channel 01/0 : 0[0] -> 1[0] via P2P/CUMEM\n", set()),
        (f"{PREFIX}Bootstrap : Using eth0:10.0.0.4<0>\n", set()),
        ("we use NET/Socket : Using [0] in our docs\n", set()),
    ],
)
def test_network_is_read_from_the_lines_that_nccl_prints(text: str, networks: set[str]) -> None:
    assert nccl_network.networks_in(text) == networks


@pytest.mark.parametrize(
    ("text", "ports", "reason"),
    [
        (NO_DEVICE, [PORT], nccl_network.NO_ACCESS),
        (f"{PREFIX}NCCL_IB_HCA set to mlx5_9\n{NO_DEVICE}", [PORT], nccl_network.WRONG_SELECTION),
        (NO_LIBRARY, [PORT], nccl_network.NO_VERBS),
        (NEWEST, [PORT], "NCCL_IB_DISABLE=1 is set; remove it from the script, the image and /etc/nccl.conf"),
        (NO_DEVICE, [EFA], nccl_network.NO_EFA_PLUGIN),
        (f"{PREFIX}NET/Socket : Using [0]eth0:10.0.0.4<0>\n", [PORT], nccl_network.UNKNOWN),
    ],
)
def test_reason_and_remedy_follow_from_the_log(text: str, ports: list[dict[str, Any]], reason: str) -> None:
    assert nccl_network.reason_in(text, ports) == reason


@pytest.mark.parametrize("line", ["NCCL" * 250, f"{PREFIX}Using network a{' ' * 900}x", PREFIX * 30])
def test_each_line_is_processed_quickly(line: str) -> None:
    """Regardless of what a job prints, the supervisor that reads it must not miss a heartbeat."""
    text = f"{line}\n" * (nccl_network.MAX_READ // len(line))
    begin = time.process_time()
    assert not any(nccl_network.is_about_networks(line) for line in text.splitlines() if "NCCLNCCL" in line)
    assert nccl_network.networks_in(text) == set()
    assert nccl_network.networks_in(text.replace("\n", " ")) == set()
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{PREFIX}NET/IB : No device found.", True),
        (f"{PREFIX}NCCL_IB_HCA set to mlx5_9", True),
        (f"{PREFIX}Failed to open libibverbs.so[.1]", True),
        (f"{PREFIX}Bootstrap : Using eth0:10.0.0.4<0>", False),
        ("NET of NCCL", False),
    ],
)
def test_lines_about_networks_are_kept_for_the_reason(line: str, expected: bool) -> None:
    assert nccl_network.is_about_networks(line) is expected


def test_message_names_the_ports() -> None:
    ports = [{"name": f"mlx5_{index}/1", "driver": "mlx5_core"} for index in range(8)]
    expected = (
        "NCCL is using TCP (NET/Socket), although the RDMA ports mlx5_0/1, mlx5_1/1, mlx5_2/1, mlx5_3/1 and 4 more are "
    )
    assert nccl_network.socket_problem(NO_DEVICE, ports).text.startswith(f"{expected}active: NCCL sees no device")
    text = nccl_network.socket_problem(NO_DEVICE, ports[:1]).text
    assert "although the RDMA port mlx5_0/1 is active: " in text


def test_hostile_log_is_read_in_bounded_time(tmp_path: Path) -> None:
    """A pattern that backtracks over a line would take hours."""
    (tmp_path / "launcher.log").write_text(
        "NCCL INFO NCCL" * 20_000 + "\n" + "NCCL INFO x via NET/" * 20_000 + NO_DEVICE
    )
    plan: Any = {"node": {"node_rank": 0, "slots": 1}, "nodes": [{}, {}], "rank_logs": "launcher"}
    network = nccl_network.NcclNetwork(str(tmp_path), plan)
    for _reading in range(10):
        network.decide([{"name": "mlx5_0/1", "driver": "mlx5_core"}])
    assert len(network.lines) < nccl_network.MAX_LINES and all(len(line) <= 1000 for line in network.lines)
    assert [problem.key for problem in network.current_problems] in ([], ["network"])


# - in runs

JOB = ["/bin/sh", "-c", 'cat "$0/log" 2>/dev/null; while [ ! -e "$0/go" ]; do sleep 0.05; done']
RunMaker = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[RunMaker]:
    """Make runs whose nodes have an RDMA port."""
    runs: list[Run] = []

    def maker(log: str, state: str = "4: ACTIVE", nodes: int = 2, **options: Any) -> Run:
        ports = {"lifeline_port": free_port(), "master_port": free_port()}
        run = make_run(tmp_path, [[*JOB, str(tmp_path)]] * nodes, **{**ports, "first_address": 171, **options})
        (tmp_path / "log").write_text(log)
        port = tmp_path / "sys" / "mlx5_0" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text("InfiniBand\n")
        for name, source in run.sources.items():
            run.sources[name] = source.replace('"/sys/class/infiniband"', json.dumps(f"{tmp_path}/sys"))
        run.set_constant("HOST_CHECK_INTERVAL", 0.2)
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def network_events(run: Run) -> list[str]:
    return [event for event in run.events() if "NET/Socket" in event]


def test_tcp_used_despite_rdma_is_reported_once_and_the_run_continues(make: RunMaker) -> None:
    run = make(NO_DEVICE)
    run.start()
    run.wait_for("running")
    expected = f"node0: {nccl_network.socket_problem(NO_DEVICE, [PORT]).text}"
    eventually(lambda: expected in run.events())
    problems = eventually(lambda: run_status.read(run.request(0, wait=0))["run"]["health"])
    assert any("NET/Socket" in text for text in problems)
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    assert network_events(run) == [expected]
    findings = run.result()["nodes"][0]["report"]["health"]
    assert [finding["hardware"] for finding in findings if "NET/Socket" in finding["text"]] == [""]


def test_log_that_nccl_writes_to_the_run_directory_is_read(make: RunMaker) -> None:
    run = make("")
    run.start()
    run.wait_for("running")
    (run.node(0) / "nccl.gpu1.4711.log").write_text(NO_LIBRARY)
    expected = f"node0: {nccl_network.socket_problem(NO_LIBRARY, [PORT]).text}"
    eventually(lambda: expected in run.events())


@pytest.mark.parametrize(
    ("log", "options"),
    [
        (INFINIBAND, {}),
        (NO_DEVICE, {"state": "1: DOWN"}),
        (NO_DEVICE, {"nodes": 1}),
        (NO_DEVICE, {"variables": ("NCCL_IB_DISABLE",)}),
    ],
)
def test_nothing_is_reported_if_no_network_is_lost(make: RunMaker, log: str, options: dict[str, Any]) -> None:
    run = make(log, **options)
    run.set_constant("LOG_CHECK_INTERVAL", 0.2)
    run.start()
    run.wait_for("running")
    log_file = run.node(0) / "launcher.log"
    eventually(lambda: log_file.read_text() == log)
    pulses = [eventually(lambda: run.read(0, "status.json"))]
    eventually(lambda: (run.read(0, "status.json") or {}).get("updated") != pulses[0].get("updated"))
    (run.directory / "go").touch()
    run.wait_for("succeeded")
    assert network_events(run) == []


# - the hook that enables logging of ranks

PRINT = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('NCCL_')}))"


def nccl_variables(directory: Path, **variables: str) -> dict[str, str]:
    """Return the NCCL variables in a job's Python process."""
    stack_collector.write_hook(str(directory))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(directory / "hooks"), **variables}
    output = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, check=True).stdout
    result: dict[str, str] = json.loads(output)
    return result


def test_ranks_log_their_network_unless_they_configure_the_log(tmp_path: Path) -> None:
    environment = {"MUSTER_NCCL_LOG": f"{tmp_path}/nccl.%h.%p.log", "LOCAL_RANK": "0"}
    assert nccl_variables(tmp_path, **environment) == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "NET,ENV",
        "NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p.log",
    }
    assert nccl_variables(tmp_path, **environment, NCCL_DEBUG="WARN") == {"NCCL_DEBUG": "WARN"}
    assert nccl_variables(tmp_path, LOCAL_RANK="0") == {}
    assert nccl_variables(tmp_path, MUSTER_NCCL_LOG="x") == {}, "a launcher"
