"""Differences in the nodes' NCCL setup are reported with timeouts and lost connections that they may cause."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.nccl_setups import TEXTS
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.nccl_differences import (
    describe_differences,
    reported_setups,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit.plugins.plugin_utils.failures.results import rank, report, result
from tests.unit.plugins.plugin_utils.failures.test_waiting import watchdog

NODES = [{"name": f"gpu{n}", "first_rank": 2 * n, "slots": 2, "address": f"10.0.0.{n + 1}"} for n in range(3)]
WAITED = watchdog(1, "ALLREDUCE")
LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"


def verdict(*setups: list[dict[str, Any]], error: str = WAITED, **more: Any) -> dict[str, Any]:
    """Return the first failure of a run in which all ranks of three nodes fail with an error, and its explanation."""
    nodes = [
        report(1, *(rank(2 * n + local, 1, error) for local in (0, 1)), nccl=nccl, **more)
        for n, nccl in enumerate(setups)
    ]
    first: dict[str, Any] = verdict_from_hub({"nodes": NODES}, result(*nodes, first="node0"))["first_failure"]
    return {**first, "explanation": explain_failure(first["error"], first["last_lines"])}


def of(node: int, *ranks: int, **texts: str) -> dict[str, Any]:
    """Return the NCCL setup of a node, for all or some of its ranks."""
    return {**dict.fromkeys(TEXTS, ""), "ranks": list(ranks or (2 * node, 2 * node + 1)), **texts}


def same(field: str, *values: str, **more: str) -> list[list[dict[str, Any]]]:
    return [[of(node, **{field: value}, **more)] for node, value in enumerate(values)]


@pytest.mark.parametrize(
    ("field", "values", "text"),
    [
        ("network", ("IB", "IB", "Socket"), "networks: IB (ranks 0-3 on gpu0, gpu1), Socket"),
        ("link", ("RoCE", "InfiniBand", "RoCE"), "link layers: RoCE (ranks 0-1, 4-5 on gpu0, gpu2), InfiniBand (ranks"),
        ("plugin", ("IBext_v8 (v8)", "IBext_v8 (v8)", "IBext_v10 (v10)"), "network plug-ins: IBext_v8 (v8) (ranks 0-3"),
        ("version", ("2.21.5", "2.26.2", "2.21.5"), "releases of NCCL: 2.21.5 (ranks 0-1, 4-5 on gpu0, gpu2), 2.26.2"),
    ],
)
@pytest.mark.parametrize("error", [WAITED, LOST])
def test_ranks_and_nodes_that_differ_are_named(field: str, values: tuple[str, ...], text: str, error: str) -> None:
    first = verdict(*same(field, *values), error=error)
    assert first["error"].startswith(f"NCCL uses different {text}")
    assert first["error"].endswith(f"; {error}") or "; all 6 ranks wait in ALLREDUCE 1" in first["error"]
    explanation = first["explanation"]
    assert (explanation["id"], explanation["confidence"]) == (f"nccl-{field}-differs", "log")


def test_interfaces_differ_only_if_one_is_not_that_of_its_nodes_address() -> None:
    setups = [[of(n, interface=name, address=f"10.0.0.{n + 1}")] for n, name in enumerate(("eth0", "ens3", "eth0"))]
    assert "NCCL uses different" not in verdict(*setups)["error"]
    setups[1][0]["address"] = "172.17.0.1"
    error = verdict(*setups)["error"]
    assert error.startswith("NCCL uses different interfaces: eth0 (ranks 0-1, 4-5 on gpu0, gpu2), ens3 (ranks 2-3 on")


@pytest.mark.parametrize(
    ("of_node", "of_nccl"),
    [
        ("fd00:0:0::{}", "fd00::{}"),
        ("FD00::{}", "fd00:0:0:0:0:0:0:{}"),
        ("fe80::{}%eth0", "fe80::{}"),
        ("gpu{}.local", ""),
        ("gpu{}.local", "gpu{}.local"),
    ],
)
def test_notation_of_an_address_is_no_difference(of_node: str, of_nccl: str) -> None:
    def differences(*addresses: str) -> str:
        setups = [
            ({**of(n, interface=f"eth{n}", address=address), "ranks": [2 * n]}, of_node.format(n + 1))
            for n, address in enumerate(addresses)
        ]
        return describe_differences(setups, NODES)

    assert differences(of_nccl.format(1), of_nccl.format(2)) == ""
    assert differences(of_nccl.format(1), "fd00::7").startswith("NCCL uses different interfaces: ")
    assert differences("fd00::x", of_nccl.format(2)).startswith("NCCL uses different interfaces: ")


def test_builds_of_a_release_for_different_releases_of_cuda_are_no_difference() -> None:
    error = verdict(*same("version", "2.21.5+cuda12.4", "2.21.5+cuda12.6", "2.21.5"))["error"]
    assert "NCCL uses different" not in error
    error = verdict(*same("version", "2.21.5+cuda12.4", "2.21.5+cuda12.6", "2.26.2+cuda12.6"))["error"]
    assert error.startswith("NCCL uses different releases of NCCL: 2.21.5 (ranks 0-3 on gpu0, gpu1), 2.26.2 (ranks 4-5")


@pytest.mark.parametrize("missing", ["name", "first_rank", "slots", "address"])
def test_nodes_whose_records_lack_a_value_have_no_error_of_their_own(missing: str) -> None:
    nodes = [*NODES[:2], {name: value for name, value in NODES[2].items() if name != missing}]
    reports = {"nodes": [{"report": {"nccl": nccl}} for nccl in same("network", "IB", "Socket", "IB")]}
    text = describe_differences(reported_setups(reports, nodes), nodes)
    assert text.startswith("NCCL uses different networks: ") and "Socket (ranks 2-3 on gpu1)" in text


@pytest.mark.parametrize(
    ("error", "more"),
    [
        ("ValueError: boom", {}),
        (watchdog(40, "ALLREDUCE"), {}),
        (WAITED, {"last_log": "/run/2.log", "last_lines": "step 7 loss: 2.31"}),
        (WAITED, {"last_log": "/run/2.log", "last_lines": "last enqueued NCCL work: 9, last completed NCCL work: 8."}),
        ("RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation", {}),
    ],
    ids=["another error", "a later collective", "a loss", "completed", "gloo"],
)
def test_difference_is_not_named_for_other_errors_or_after_collectives_had_worked(
    error: str, more: dict[str, Any]
) -> None:
    assert "NCCL uses different" not in verdict(*same("network", "IB", "IB", "Socket"), error=error, **more)["error"]


def test_ranks_of_a_node_need_no_network() -> None:
    only = [[of(0, 0, network="IB"), of(0, 1, network="Socket")], [], []]
    assert "NCCL uses different" not in verdict(*only)["error"]
    one_rank = [[of(0, 0, network="IB"), of(0, 1, network="Socket")], *same("network", "", "IB", "IB")[1:]]
    error = verdict(*one_rank)["error"]
    assert error.startswith("NCCL uses different networks: IB (ranks 0, 2-5 on gpu0, gpu1, gpu2), Socket (rank 1 on")


def test_known_location_of_the_rank_that_others_wait_for_comes_before_a_difference() -> None:
    texts = {"text": "", "state": "", "cpu": "", "frames": [], "workers": []}
    waits = {"kind": "collective", "call": "all_reduce", "function": "f", "file": "/c/train.py", "line": 88, **texts}
    loads = {"kind": "code", "call": "", "function": "load", "file": "/c/data.py", "line": 41, **texts}
    silent = {**rank(3, -signal.SIGTERM), "ended_by_us": True}
    nodes = [
        report(
            1, rank(0, 1, WAITED), rank(1, 1, WAITED), stacks=[{**waits, "ranks": [0, 1]}], nccl=[of(0, network="IB")]
        ),
        report(1, rank(2, 1, WAITED), silent, nccl=[of(1, network="Socket")]),
    ]
    plan = {"nodes": NODES[:2]}
    nodes[1]["stacks"] = [{**waits, "ranks": [2]}, {**loads, "ranks": [3]}]
    assert "it was in load" in verdict_from_hub(plan, result(*nodes, first="node0"))["first_failure"]["error"]
    nodes[0]["stacks"] = nodes[1]["stacks"] = []
    error = verdict_from_hub(plan, result(*nodes, first="node0"))["first_failure"]["error"]
    assert error.startswith("NCCL uses different networks: IB (ranks 0-1 on gpu0), Socket (ranks 2-3 on gpu1); ")


@pytest.mark.parametrize("nccl", ["x", [7], [{"ranks": [0], "network": ["IB"]}], [{"ranks": [99], "network": "IB"}]])
def test_malformed_setups_are_ignored(nccl: Any) -> None:
    assert "NCCL uses different" not in verdict(nccl, [of(1, network="IB")], [])["error"]
