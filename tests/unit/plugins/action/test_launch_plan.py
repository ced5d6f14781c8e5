"""The plan of a run, created from nodes, facts and a job."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action.launch_plan import (
    format_hourly_cost,
    make_plan,
    render_plan,
    render_restarts,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import render_findings
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTableError,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import exclude_spares, get_launcher
from tests.unit.healthy import arguments, cluster
from tests.unit.supervised import make_job


def with_slots(read: dict[str, Any], *slots: object, **overrides: Any) -> dict[str, Any]:
    """Return arguments for the nodes of these facts, with these slots in the inventory."""
    request = arguments(read, **overrides)
    for node, count in zip(request["nodes"], slots, strict=True):
        node["slots"] = count
    return request


def test_run_takes_all_nodes_by_default() -> None:
    job, table, findings = make_plan(arguments(cluster(3)))
    assert findings == []
    assert (job.run_id, table.nnodes, table.world_size) == ("run", 3, 3)
    assert [node.name for node in table.nodes] == ["node1", "node2", "node3"]


@pytest.mark.parametrize(("nnodes", "count"), [(2, 2), ("1", 1), ("1:3", 3), ("", 3)])
def test_nnodes_limits_the_nodes_of_a_run(nnodes: object, count: int) -> None:
    _job, table, findings = make_plan(arguments(cluster(3), nnodes=nnodes))
    assert findings == []
    assert [node.name for node in table.nodes] == ["node1", "node2", "node3"][:count]


def test_spares_are_planned_in_addition_to_the_nodes() -> None:
    job, table, findings = make_plan(arguments(cluster(3), nnodes=2, restarts=1, spares=1))
    assert (
        [finding.id for finding in findings] == ["restart-no-checkpoint"]
        and table.nnodes == 3
        and exclude_spares(job, table).nnodes == 2
    )
    lines = render_restarts(job, table, {"node3": 1.5}, "USD")
    assert lines == [
        "  restarts     1 at most, after node_lost, hardware, interrupted, hang",
        "  spares       node3, 1.50 USD an hour of the costs above",
    ]
    assert render_restarts(make_job(), table, {}, "USD") == []


def test_run_of_spares_only_is_refused() -> None:
    with pytest.raises(ValueError, match="launch_spares is 3, but the run has only 3 nodes in total"):
        make_plan(arguments(cluster(3), restarts=1, spares=3))


def test_more_nodes_than_available_is_refused() -> None:
    with pytest.raises(RankTableError, match="4"):
        make_plan(arguments(cluster(3), nnodes=4))


def test_unequal_slots_with_env_launcher_are_a_finding() -> None:
    (finding,) = make_plan(with_slots(cluster(2), 2, 4, launcher="env"))[2]
    assert (finding.severity, finding.id) == ("error", "launcher")
    assert "node1 2, node2 4" in finding.problem


def test_nodes_without_a_reply_are_findings() -> None:
    request = arguments(cluster(3))
    request["facts"]["node2"] = {"unreachable": True, "msg": "timed out"}
    request["facts"]["node3"] = None
    findings = make_plan(request)[2]
    result = {finding.nodes: finding.problem for finding in findings if finding.id == "unreachable"}
    assert set(result) == {("node2",), ("node3",)}
    assert result[("node2",)] == "it did not respond in time"
    assert "--limit" in result[("node3",)]


# --- Order ------------------------------------------------------------------------------------------------------------


def in_order(*order: str, ranked: bool = True, **overrides: Any) -> tuple[list[str], list[Any]]:
    """Return the order of nodes and the findings for a run with this node_rank order."""
    request = arguments(cluster(len(order)), **overrides)
    request["nodes"].sort(key=lambda node: order.index(node["name"]))
    if ranked:
        for rank, node in enumerate(request["nodes"]):
            node["node_rank"] = rank
    _job, table, findings = make_plan(request)
    return [node.name for node in table.nodes], findings


def test_warns_when_c10d_ignores_prescribed_rank_order() -> None:
    order, (finding,) = in_order("node2", "node1", "node3", rdzv_backend="c10d")
    assert order == ["node1", "node2", "node3"]
    assert (finding.severity, finding.id) == ("warning", "rank-order")
    assert "node1 gets rank 0 instead of 1, node2 gets rank 1 instead of 0; rank 0 is on node1" in finding.problem
    assert finding.remedy.startswith("set launch_rdzv_backend: static; ")


def test_rank_order_warning_does_not_suggest_static_for_elastic_run() -> None:
    order, (finding,) = in_order("node2", "node1", nnodes="1:2")
    assert order == ["node1", "node2"]
    assert finding.id == "rank-order"
    assert "static" not in finding.remedy
    assert in_order("node2", "node1", nnodes="1:2", skip=["rank-order"])[1] == []


@pytest.mark.parametrize(
    ("order", "overrides"),
    [
        (("node1", "node2", "node3"), {"rdzv_backend": "c10d"}),  # identical to torch's order
        (("node3", "node2", "node1"), {}),
        (("node3", "node2", "node1"), {"launcher": "env"}),
        (("node3", "node2", "node1"), {"rdzv_backend": "c10d", "ranked": False}),  # no order was requested
    ],
)
def test_no_warning_when_rank_order_is_kept_or_not_prescribed(
    order: tuple[str, ...], overrides: dict[str, Any]
) -> None:
    assert in_order(*order, **overrides)[1] == []


# --- Slots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [None, ""])
def test_slots_default_to_gpu_count(empty: object) -> None:
    _job, table, findings = make_plan(with_slots(cluster(2, gpu_count=8), empty, empty))
    assert [node.slots for node in table.nodes] == [8, 8]
    assert findings == []


def test_nodes_without_gpus_get_one_process_each_and_a_note() -> None:
    _job, table, findings = make_plan(with_slots(cluster(2), None, None))
    assert table.world_size == 2
    assert [(finding.severity, finding.id, finding.nodes) for finding in findings] == [
        ("note", "no-gpu", ("node1", "node2"))
    ]
    assert render_findings(findings) == (
        "note: node1, node2: no GPU, so one process is started on the CPU of each node; for more processes, add "
        "-e nproc_per_node=N, or set node_slots in the inventory"
    )


@pytest.mark.parametrize("gpus", [{"gpu_count": 8}, {"gpus": {"pci": 8}}])
def test_a_node_without_visible_gpus_gets_a_warning_if_gpus_are_expected(gpus: dict[str, Any]) -> None:
    facts = cluster(2)
    facts["node2"].update({**gpus, "gpus": {**facts["node2"]["gpus"], **gpus.get("gpus", {})}})
    _job, _table, findings = make_plan(with_slots(facts, None, 1))
    assert ("warning", "no-gpu", ("node1",)) in [(finding.severity, finding.id, finding.nodes) for finding in findings]


@pytest.mark.parametrize("processes", [0, -1])
def test_nproc_per_node_below_one_is_refused(processes: int) -> None:
    with pytest.raises(ValueError, match=f"nproc_per_node is {processes}, but must be 1 or more"):
        make_plan(with_slots(cluster(2), 2, 2, nproc_per_node=processes))


def test_nproc_per_node_overrides_slots() -> None:
    _job, table, findings = make_plan(with_slots(cluster(2), None, 2, nproc_per_node=5))
    assert [node.slots for node in table.nodes] == [5, 5]
    assert findings == []


# --- Terminal output --------------------------------------------------------------------------------------------------


def test_plan_is_rendered_for_the_terminal() -> None:
    table = build_rank_table([HostSpec("node9", "10.0.0.9", 2), HostSpec("node10", "10.0.0.10", 1)])
    job = make_job(
        run_id="first",
        launcher="torchrun",
        args=("--resume", "--name", "a b's", "$HOME"),
        variables=("WANDB_API_KEY", "A"),
    )
    facts = {"interpreter": "/opt/env/bin/python", "working_directory": {"path": "/srv/project"}}
    assert render_plan(job, table, facts) == (
        "run first: 2 nodes, world size 3, torchrun, static rendezvous, rendezvous at 10.0.0.9 port 29500\n"
        "  node 0  node9   10.0.0.9  ranks 0-1\n"
        "  node 1  node10  10.0.0.10  rank 2\n"
        "  command      /opt/env/bin/python -u job.py --resume --name 'a b'\"'\"'s' '$HOME'\n"
        "  directory    /srv/project\n"
        "  environment  A, WANDB_API_KEY"
    )


def test_hourly_cost_is_shown_only_when_all_prices_are_known() -> None:
    table = build_rank_table(
        [HostSpec("a", "10.0.0.9", 2), HostSpec("b", "10.0.0.10", 1), HostSpec("c", "10.0.0.11", 1)], nnodes=2
    )
    cost = format_hourly_cost(table, {"a": 2.5, "b": 5.06, "c": None}, "EUR")
    assert cost == "7.56 EUR an hour"
    assert "  costs        7.56 EUR an hour\n  command " in render_plan(make_job(), table, {}, cost)
    assert format_hourly_cost(table, {"a": 2.5, "b": None}, "EUR") == format_hourly_cost(table, {"a": 2.5}, "EUR") == ""
    assert "costs" not in render_plan(make_job(), table, {})


def test_plan_without_facts_shows_requested_values() -> None:
    table = build_rank_table([HostSpec("a", "10.0.0.9", 1)])
    job = make_job(run_id="first", interpreter="/opt/env/bin/python:python3", image="torch:2", module="m", script="")
    assert render_plan(job, table, {}).splitlines()[0].startswith("run first: 1 node, world size 1, ")
    assert render_plan(job, table, {}).splitlines()[-3:] == [
        "  command      python3 -u -m m",
        "  directory    the user's home",
        "  image        torch:2",
    ]


def test_plan_of_elastic_run_shows_node_range_and_rendezvous() -> None:
    job = make_job(run_id="first", launcher="torchrun", rdzv_backend="c10d", min_nnodes=1)
    table = get_launcher(job).order(build_rank_table([HostSpec("a", "10.0.0.9", 1), HostSpec("b", "10.0.0.10", 1)]))
    first = render_plan(job, table, {}).splitlines()[0]
    assert (
        first == "run first: 1 to 2 nodes, world size 2, torchrun, c10d rendezvous, rendezvous at 10.0.0.10 port 29500"
    )


def test_plan_of_large_cluster_is_shortened() -> None:
    table = build_rank_table([HostSpec(f"n{n}", f"10.0.{n // 250}.{n % 250 + 1}", 8) for n in range(1000)])
    lines = render_plan(make_job(), table, {}).splitlines()
    assert len(lines) == 19
    assert lines[16] == "  ... and 985 more"
    assert "1000 nodes, world size 8000" in lines[0]
