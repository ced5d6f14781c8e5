"""A provider reclaims the machine that leads a run: its ranks save, another node leads, and no step is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit import supervised
from tests.unit.plugins.module_utils.supervisor.test_notices import MetadataServer
from tests.unit.plugins.module_utils.supervisor.test_save_watch import COUNTS, INTERRUPTION, steps
from tests.unit.restarting import WAITING_TIMES, check_end, result_of
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run, own_network


@pytest.fixture
def services() -> Iterator[list[MetadataServer]]:
    """Yield the metadata services of three machines."""
    servers = [MetadataServer() for _number in range(3)]
    for server in servers:
        server.replies["/latest/api/token"] = (200, "token")
    yield servers
    for server in servers:
        server.server.shutdown()
        server.server.server_close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, services: list[MetadataServer]) -> Iterator[Run]:
    """Yield a run of five nodes that share a directory of checkpoints."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(33))
    ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
    options: dict[str, Any] = {"restarts": 5, "restart_when": ("interrupted",), "restart_min_nodes": 2}
    run = make_run(tmp_path, [[sys.executable, "-c", COUNTS]] * 5, **ports, **options)
    for name, seconds in WAITING_TIMES.items():
        run.set_constant(name, seconds)
    for number, plan in enumerate(run.plans):
        plan["working_directory"], plan["checkpoints"] = str(tmp_path), str(tmp_path / "checkpoints")
        plan["notices"].update(grace=600.0, metadata_interval=0.1)
        plan["notices"]["metadata"] = {"ec2": services[number].address} if number < 2 else {}
    run.start()
    yield run
    end_by_force(run)


def announce_end(service: MetadataServer) -> None:
    service.replies["/latest/meta-data/spot/instance-action"] = (200, INTERRUPTION)


def check_next_attempt(run: Run, attempt: int, before: int, after: int) -> None:
    """Wait until an attempt is running, and check that its first step follows the last step of the previous attempt.

    before, after: the nodes with rank 0.
    """
    eventually(lambda: steps(run, after, attempt))
    assert steps(run, after, attempt)[0] == steps(run, before, attempt - 1)[-1] + 1


def test_no_step_is_lost_if_the_leaders_are_reclaimed_one_by_one(run: Run, services: list[MetadataServer]) -> None:
    eventually(lambda: all(steps(run, member, 0) for member in range(5)))
    announce_end(services[0])
    check_next_attempt(run, 1, before=0, after=1)
    run.wait_for("failed", 0)  # the node has left the run, so its machine may be removed
    eventually(lambda: all(steps(run, member, 1) for member in range(1, 5)))
    announce_end(services[1])
    check_next_attempt(run, 2, before=1, after=2)
    run.stop(2)
    result = result_of(run, 2)
    records = [(record["end_class"], record["node"], record["nodes"]) for record in result["attempts"]]
    names = [f"node{number}" for number in range(5)]
    assert records == [
        ("interrupted", "node0", names),
        ("interrupted", "node1", names[1:]),
        ("stopped", "", names[2:]),
    ]
    check_end(run, 2)
