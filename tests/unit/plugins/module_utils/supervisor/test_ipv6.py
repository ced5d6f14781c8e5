# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on nodes without IPv4 addresses: in a network namespace whose only network is an IPv6 prefix.

The first test starts the others there, each of them with real supervisors and, if it is installed, real torchrun.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._python_env import file_server
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths
from ansible_collections.muster.training.plugins.module_utils._stage_data.peers import PeerReply, Peers
from ansible_collections.muster.training.plugins.module_utils._supervisor import nccl_ras, ports
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTable,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit.supervised import TIMEOUTS, Run, end_by_force, eventually, free_port, make_job

IS_INSIDE = "MUSTER_TEST_IPV6_ONLY" in os.environ
PREFIX = "fd00:6d75:7374:6572"
# The nodes' addresses are assigned to the loopback interface. It keeps 127.0.0.1, as on any machine: torchrun needs
# localhost.
NAMESPACE = (
    "ip link set lo up; "
    f"for node in a b c; do ip -6 address add {PREFIX}::$node/128 dev lo; done; "
    'exec env MUSTER_TEST_IPV6_ONLY=1 "$@"'
)
ENTER = ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec", NAMESPACE, "sh"]
if os.geteuid() == 0:
    ENTER = ["unshare", "--net", *ENTER[4:]]
inside = pytest.mark.skipif(not IS_INSIDE, reason="is started by the first test of this file")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
# Each rank connects to the others over gloo, and prints the sum over all ranks.
TORCH_JOB = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(value)
print("sum", int(value), "at", os.environ["MASTER_ADDR"], flush=True)
dist.destroy_process_group()
"""
ENV_JOB = ["sh", "-c", 'echo "rank at $MASTER_ADDR $NCCL_SOCKET_FAMILY"; exit "$(cat code 2>/dev/null || echo 0)"']
RunMaker = Callable[..., Run]


@pytest.mark.skipif(IS_INSIDE, reason="it starts the others")
def test_nodes_with_only_ipv6_addresses_are_supported(tmp_path: Path) -> None:
    if subprocess.run([*ENTER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no network namespaces, or has no IPv6")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(
        [*ENTER, *command, f"--basetemp={tmp_path}/inside", __file__],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[5],
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


@pytest.fixture
def make(tmp_path: Path) -> Iterator[RunMaker]:
    """Make runs of nodes with addresses from the prefix, planned like any run."""
    runs: list[Run] = []

    def maker(command: list[str] | None = None, nodes: int = 2, **options: Any) -> Run:
        job = make_job(lifeline_port=free_port(), master_port=free_port(), **options)
        hosts = [HostSpec(f"node{number}", f"{PREFIX}::{number + 10:x}", 1) for number in range(nodes)]
        table: RankTable = get_launcher(job).order(build_rank_table(hosts))
        facts = {
            "interpreter": sys.executable,
            "interface": "lo",
            "runs_directory": str(tmp_path),
            "working_directory": {"path": str(tmp_path)},
        }
        plans: list[Any] = [build_node_plan(job, table, node, facts) for node in table.nodes]
        for plan in plans:
            plan["command"] = command or plan["command"]
            plan["timeouts"] = TIMEOUTS
            plan["supervision"] = "process"
        run = Run(tmp_path, plans)
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def output(run: Run, rank: int) -> str:
    paths = [path for path in run.node(rank).rglob("*.log") if path.is_file()]
    return "".join(path.read_text(errors="replace") for path in sorted(paths))


@inside
def test_lifeline_leads_a_run_to_its_end(make: RunMaker) -> None:
    run = make(ENV_JOB, nodes=3)
    run.start()
    run.wait_for("succeeded")
    assert all(f"rank at {PREFIX}::a AF_INET6" in output(run, rank) for rank in range(3))


@inside
def test_failure_ends_the_other_nodes(make: RunMaker) -> None:
    run = make(["sh", "-c", '[ "$NODE_RANK" = 0 ] || exit 7; sleep 600'])
    run.start()
    run.wait_for("failed")
    assert run.result()["nodes"][1]["report"]["exit_code"] == 7


@inside
def test_run_restarts_with_the_same_addresses(make: RunMaker) -> None:
    run = make(
        ["sh", "-c", '[ "$MUSTER_ATTEMPT" = 1 ] || exit 7; echo "again at $MASTER_ADDR"'],
        restarts=1,
        restart_when=("rank_failed", "deterministic"),
    )
    run.start()
    run.wait_for("succeeded")
    assert f"again at {PREFIX}::a" in output(run, 1)


@inside
@needs_torch
@pytest.mark.parametrize(("backend", "restarts"), [pytest.param("static", 0, marks=pytest.mark.thorough), ("c10d", 1)])
def test_torchrun_and_gloo_connect_to_each_other(make: RunMaker, tmp_path: Path, backend: str, restarts: int) -> None:
    (tmp_path / "job.py").write_text(TORCH_JOB)
    run = make(launcher="torchrun", rdzv_backend=backend, script=str(tmp_path / "job.py"), restarts=restarts)
    run.start()
    run.wait_for("succeeded", seconds=600.0)
    assert all(f"sum 3 at {PREFIX}::" in output(run, rank) for rank in range(2)), output(run, 0)


@inside
def test_wheels_are_served_to_other_nodes(tmp_path: Path) -> None:
    request = {"address": f"{PREFIX}::a", "token": "t" * 32, "directory": str(tmp_path)}
    paths = EnvironmentPaths(request)
    Path(paths.store).mkdir(parents=True)
    (Path(paths.store) / "a.whl").write_text("wheel")
    url = file_server.serve(request)["url"]
    assert url.startswith(f"http://[{PREFIX}::a]:")
    with urllib.request.urlopen(f"{url}/{request['token']}/a.whl", timeout=30) as reply:
        assert reply.read() == b"wheel"
    file_server.stop_serving({"url": f"{url}/{request['token']}"})


@inside
def test_data_is_served_to_other_nodes() -> None:
    request = {"addresses": [f"{PREFIX}::a", f"{PREFIX}::b"], "port": free_port(), "token": "t"}
    server = Peers({**request, "me": 0}, "the bucket").serve(lambda _path: PeerReply(200, b"piece"))
    assert Peers({**request, "me": 1}, "the bucket").query(0, "/piece") == b"piece"
    server.shutdown()
    server.server_close()


@inside
def test_nccl_is_queried_on_the_ipv6_loopback_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        eventually(lambda: nccl_ras.read_status(port, 0.05) == "")
        connection, _address = server.accept()
        with connection:
            assert connection.recv(100).startswith(b"CLIENT PROTOCOL")


@inside
def test_port_that_is_in_use_on_ipv6_is_not_free() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert ports.free_port(port, 0) not in (0, port)
