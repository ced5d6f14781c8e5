"""NCCL's setup of each rank, from its logs, and the verdict on real runs whose nodes differ."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.nccl_setups import TEXTS, validate_setups
from ansible_collections.muster.training.plugins.module_utils._supervisor import nccl_setups
from ansible_collections.muster.training.plugins.module_utils._supervisor.nccl_setups import read_setups, setup_in
from tests.unit.hostile import DIGITS
from tests.unit.plugins.module_utils.supervisor.test_nccl_network import INFINIBAND, NEWEST, NO_DEVICE, PREFIX
from tests.unit.plugins.module_utils.supervisor.test_own_errors import WAITS, Maker, first_failure, make, watchdog
from tests.unit.supervised import Run, eventually

__all__ = ["make"]  # the fixture

ROCE = f"{PREFIX}NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.4<0>\n{PREFIX}Using network IB\n"
OFI = (
    f"{PREFIX}NET/OFI Initializing aws-ofi-nccl 1.7.4-aws\n{PREFIX}Using network AWS Libfabric\n"
    f"{PREFIX}Bootstrap: Using ens32:10.0.0.4<0>\nNCCL version 2.21.5+cuda12.4\n"
)
LOADED = f"{PREFIX}NET/Plugin: Loaded net plugin IBext_v8 (v8)\n{PREFIX}Using network IBext_v8\n"


def setup(**texts: str) -> dict[str, str]:
    return {**dict.fromkeys(TEXTS, ""), **texts}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (INFINIBAND, setup(network="IB", link="InfiniBand", interface="eth0", address="10.0.0.4")),
        (NO_DEVICE, setup(network="Socket", interface="eth0", address="10.0.0.4")),
        (NEWEST, setup(network="Socket", interface="eth0", address="10.0.0.4")),
        (ROCE, setup(network="IB", link="RoCE")),
        (
            OFI,
            setup(
                network="AWS Libfabric",
                plugin="aws-ofi-nccl 1.7.4-aws",
                version="2.21.5+cuda12.4",
                interface="ens32",
                address="10.0.0.4",
            ),
        ),
        (LOADED, setup(network="IBext_v8", plugin="IBext_v8 (v8)")),
        ("RCCL version 2.20.5+hip6.2 HEAD:0e5a6c2\n", setup(version="2.20.5+hip6.2")),
        ("we use NET/IB : Using [0] in our docs\n", setup()),
        ("", setup()),
    ],
)
def test_setup_is_read_from_the_lines_that_nccl_prints(text: str, expected: dict[str, str]) -> None:
    assert setup_in(text) == expected


def test_logs_of_nccl_are_attributed_to_ranks_by_pid(tmp_path: Path) -> None:
    plan: Any = {"node": {"slots": 3, "first_rank": 4}, "rank_logs": "ranks"}
    for pid, text in ((11, INFINIBAND), (12, NO_DEVICE), (13, INFINIBAND), (14, ROCE)):
        (tmp_path / f"nccl.gpu1.{pid}.log").write_text(text)
    (tmp_path / "nccl.gpu1.x.log").symlink_to("nowhere")
    now = (tmp_path / "nccl.gpu1.11.log").stat().st_mtime
    setups = read_setups(str(tmp_path), plan, {11: 0, 12: 1, 13: 2}, now - 60)
    assert [(item["ranks"], item["network"]) for item in setups] == [([4, 6], "IB"), ([5], "Socket")]
    os.utime(tmp_path / "nccl.gpu1.12.log", (now - 90, now - 90))  # of an earlier attempt
    setups = read_setups(str(tmp_path), plan, {11: 0, 12: 1, 13: 2}, now - 60)
    assert [item["ranks"] for item in setups] == [[4, 6]]


@pytest.mark.parametrize("line", ["NCCL" * 250, f"{PREFIX}NET/IB : Using {'[0]a:1/' * 200}", PREFIX * 30, DIGITS])
def test_hostile_logs_are_read_in_bounded_time(tmp_path: Path, line: str) -> None:
    plan: Any = {"node": {"slots": 4, "first_rank": 0}, "rank_logs": "ranks"}
    for number in range(4):
        (tmp_path / f"nccl.a.{number}.log").write_text(f"{line}\n" * (2_000_000 // len(line)))
    begin = time.process_time()
    setups = read_setups(str(tmp_path), plan, {number: number for number in range(4)}, 0.0)
    assert time.process_time() - begin < 5
    assert len(json.dumps(setups)) < 2000


@pytest.mark.parametrize("line", ["CCL", "NCCL ", "RCCL ", f"{PREFIX}Using network"])
def test_many_short_lines_are_searched_in_bounded_time(line: str) -> None:
    text = INFINIBAND + f"{line}\n" * (nccl_setups.MAX_TOTAL // (len(line) + 1))
    begin = time.process_time()
    assert setup_in(text)["link"] == "InfiniBand"
    assert time.process_time() - begin < 1


def test_number_of_lines_that_are_searched_is_bounded() -> None:
    unrelated_line = f"{PREFIX}comm 0x1\n"
    assert setup_in(f"{unrelated_line * nccl_setups.MAX_LINES}{LOADED}") == setup()
    assert setup_in(f"{'epoch 1' * 9}\n" * nccl_setups.MAX_LINES + LOADED)["network"] == "IBext_v8"


def test_all_logs_of_a_node_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_setups, "MAX_TOTAL", len(INFINIBAND) + 5)
    plan: Any = {"node": {"slots": 2, "first_rank": 0}, "rank_logs": "ranks"}
    for number in range(2):
        (tmp_path / f"nccl.a.{number}.log").write_text(INFINIBAND)
    assert [item["ranks"] for item in read_setups(str(tmp_path), plan, {0: 0, 1: 1}, 0.0)] == [[0]]


@pytest.mark.parametrize(
    "value", ["x", [7, {}, {"ranks": "0"}, {"ranks": [True, "0", 9]}, {"ranks": [10**30]}], {"ranks": [0]}]
)
def test_malformed_setups_of_another_node_are_dropped(value: Any) -> None:
    assert validate_setups(value, range(2)) == []


def test_setups_of_another_node_are_bounded_and_only_about_its_own_ranks() -> None:
    value = [{"ranks": [0, 5, 1], "network": "a\n" * 1000, "version": 7}] * 100
    setups = validate_setups(value, range(2))
    assert len(setups) == 8 and setups[0]["ranks"] == [0, 1] and setups[0]["version"] == ""
    assert len(setups[0]["network"]) == 100 and "\n" not in setups[0]["network"]


# - in runs


@pytest.fixture
def run_with(make: Maker, tmp_path: Path) -> Callable[..., Run]:
    """Yield a function that makes runs of two nodes that print NCCL lines, and whose first rank times out."""

    def maker(*logs: str, number: int = 1) -> Run:
        for rank, log in enumerate(logs):
            (tmp_path / f"log-{rank}").write_text(log)
        (tmp_path / "timeout").write_text(watchdog(0, number, "ALLREDUCE"))
        run = make(
            f'cat "$0/log-0"; {WAITS} cat "$0/timeout" >&2; kill -ABRT $$', 'cat "$0/log-1"; echo up; exec sleep 600'
        )
        output = run.node(1) / "launcher.log"
        eventually(lambda: output.exists() and output.read_text().endswith("up\n"))
        (tmp_path / "go").touch()
        return run

    return maker


def test_nodes_on_different_networks_are_named_after_a_hang(run_with: Callable[..., Run]) -> None:
    failure = first_failure(run_with(INFINIBAND, NO_DEVICE))
    assert failure["error"].startswith("NCCL uses different networks: IB (rank 0 on node0), Socket (rank 1 on node1); ")


@pytest.mark.parametrize(("logs", "number"), [((INFINIBAND, INFINIBAND), 1), ((INFINIBAND, NO_DEVICE), 40)])
def test_no_difference_is_named_if_setups_agree_or_collectives_had_worked(
    run_with: Callable[..., Run], logs: tuple[str, ...], number: int
) -> None:
    assert "NCCL uses different" not in first_failure(run_with(*logs, number=number))["error"]
