"""The plan of an attempt by a supervisor equals the controller's plan for its nodes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import (
    change_arguments,
    first_attempt,
    local_checkpoint,
    plan_of_attempt,
    validate_attempt,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTable,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit.supervised import make_job

LAUNCHERS: list[dict[str, Any]] = [
    {"launcher": "torchrun"},
    {"launcher": "torchrun", "rdzv_backend": "c10d"},
    {"launcher": "env"},
    {"launcher": "accelerate"},
    {"launcher": "deepspeed"},
    {"launcher": "deepspeed", "deepspeed_launcher": "pdsh"},
    {"launcher": "deepspeed", "deepspeed_launcher": "openmpi"},
    {"launcher": "mpirun"},
]
NAMES = ["gpu1", "gpu2", "gpu3", "gpu4"]
FACTS = {
    "interpreter": "/venv/bin/python",
    "interface": "ens5",
    "runs_directory": "/runs",
    "working_directory": {"path": "/work"},
}
each_launcher = pytest.mark.parametrize("options", LAUNCHERS, ids=lambda options: "-".join(options.values()))


def table_of(names: list[str], slots: int = 2) -> RankTable:
    return build_rank_table([HostSpec(name, f"10.0.0.{name[-1]}", slots) for name in names])


def planned(names: list[str], node_name: str, **options: Any) -> Any:
    job = make_job(run_id="first", args=("--nnodes=9", "-np", "7"), **options)
    table = get_launcher(job).order(table_of(names))
    node = next(node for node in table.nodes if node.name == node_name)
    return build_node_plan(job, table, node, FACTS)


def comparable(plan: Any) -> dict[str, Any]:
    """Return the launcher's inputs, apart from log names and the number of the attempt."""
    command = [
        word
        for word in plan["command"]
        if not word.startswith(("--log-dir=", "--rdzv-id=", "--hostfile=", "--config_file=", "/runs/"))
    ]
    # variables that differ between attempts or contain the run directory
    varying = ("MUSTER_ATTEMPT", "MUSTER_NOTICE_FILE", "TORCH_FR_DUMP_TEMP_FILE")
    environment = {name: value for name, value in plan["environment"].items() if name not in varying}
    parts = ("world_size", "launcher_environment", "files")
    ranks = [(node["name"], node["first_rank"], node["slots"]) for node in plan["nodes"] if node["slots"]]
    return {"command": command, "environment": environment, "ranks": ranks, **{part: plan[part] for part in parts}}


@each_launcher
def test_first_attempt_is_planned_as_a_run_without_restarts(options: dict[str, Any]) -> None:
    for node_name in NAMES:
        with_restarts, without = planned(NAMES, node_name, restarts=3, **options), planned(NAMES, node_name, **options)
        assert comparable(with_restarts) == comparable(without)
        assert with_restarts["command"] == without["command"]
        assert with_restarts["environment"] == without["environment"]


@each_launcher
def test_later_attempt_of_fewer_nodes_equals_a_launch_on_these_nodes(options: dict[str, Any]) -> None:
    for size in (2, 3):
        for peers in itertools.combinations(range(1, 4), size - 1):
            members = [0, *peers]
            names = [NAMES[member] for member in members]
            attempt: Any = {"number": 2, "members": members, "master_port": 29500, "checkpoint": ""}
            for node_name in names:
                plan = planned(NAMES, node_name, restarts=3, **options)
                directory = f"/runs/first/node{plan['node']['node_rank']}"
                later = plan_of_attempt(plan, attempt, directory)
                launched = planned(names, node_name, **options)
                if options == {"launcher": "deepspeed", "deepspeed_launcher": "openmpi"} or "mpirun" in str(options):
                    later["command"] = without_network(later["command"])  # the network that all nodes share also works
                    launched["command"] = without_network(launched["command"])
                assert comparable(later) == comparable(launched)
                assert later["node"]["attempt_rank"] == launched["node"]["node_rank"]
                assert later["environment"]["MUSTER_ATTEMPT"] == "2" and later["logs"] == "attempt-2"


@each_launcher
def test_attempt_under_another_hub_equals_a_launch_on_its_nodes(options: dict[str, Any]) -> None:
    """Except with launchers that start the other nodes: their command is on node 0 only."""
    if options["launcher"] == "mpirun" or "deepspeed_launcher" in options:
        return
    attempt: Any = {"number": 1, "hub": 1, "members": [1, 3], "master_port": 29500, "checkpoint": ""}
    for node_name in ("gpu2", "gpu4"):
        plan = planned(NAMES, node_name, restarts=3, **options)
        later = plan_of_attempt(plan, attempt, f"/runs/first/node{plan['node']['node_rank']}")
        launched = planned(["gpu2", "gpu4"], node_name, **options)
        assert comparable(later) == comparable(launched)
        assert (later["hub"], later["lifeline"]) == (1, launched["lifeline"])


def without_network(command: list[str]) -> list[str]:
    return [word for word in command if not word.startswith(("10.0.0.", "--launcher_args="))]


def test_torchrun_gets_a_new_rendezvous_and_log_directory_in_each_attempt() -> None:
    plan = planned(NAMES, "gpu2", restarts=1, launcher="torchrun")
    attempt: Any = {"number": 1, "members": [0, 1, 2, 3], "master_port": 29501, "checkpoint": ""}
    command = plan_of_attempt(plan, attempt, "/runs/first/node1")["command"]
    assert {"--rdzv-id=first.1", "--log-dir=/runs/first/node1/attempt-1/ranks", "--master-port=29501"} <= set(command)
    assert command[-3:] == ["--nnodes=9", "-np", "7"], "the job's own arguments are left alone"


def test_spare_has_no_ranks_until_it_takes_part() -> None:
    plan = planned(NAMES, "gpu4", restarts=1, spares=1, launcher="env")
    assert plan["node"]["slots"] == 0 and plan["world_size"] == 6 and first_attempt(plan)["members"] == [0, 1, 2]
    later = plan_of_attempt(
        plan, {"number": 1, "members": [0, 3, 2], "master_port": 29500, "checkpoint": ""}, "/runs/first/node3"
    )
    assert (later["node"]["slots"], later["node"]["first_rank"], later["node"]["attempt_rank"]) == (2, 2, 1)
    assert [node["first_rank"] for node in later["nodes"]] == [0, 0, 4, 2]


def test_hostfile_lists_the_nodes_of_the_attempt_in_the_order_of_their_ranks() -> None:
    plan = planned(NAMES, "gpu1", restarts=1, spares=1, launcher="mpirun")
    assert plan["files"]["hostfile"] == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n10.0.0.3 slots=2\n"
    later = plan_of_attempt(
        plan, {"number": 1, "members": [0, 3, 2], "master_port": 29500, "checkpoint": ""}, "/runs/first/node0"
    )
    assert later["files"]["hostfile"] == "10.0.0.1 slots=2\n10.0.0.4 slots=2\n10.0.0.3 slots=2\n"


@given(st.dictionaries(st.sampled_from(["number", "members", "master_port", "type"]), st.none() | st.integers()))
def test_malformed_attempt_is_rejected(message: dict[str, Any]) -> None:
    assert validate_attempt(message, 4) is None


@pytest.mark.parametrize("members", [[0, 0], [0, 4], [-1], ["0"], [True], 3])
def test_attempt_with_impossible_members_is_rejected(members: Any) -> None:
    assert validate_attempt({"number": 1, "members": members, "master_port": 29500, "checkpoint": ""}, 4) is None
    good = {"number": 1, "hub": 0, "members": [0, 3], "master_port": 29500, "checkpoint": ""}
    assert validate_attempt({**good, "hub": 4}, 4) is None
    assert validate_attempt({**good, "more": 1}, 4) == {**good, "checkpoint_name": ""}


@pytest.mark.parametrize("name", ["/etc", "../other", "a/../../b", "", 3, "a" * 5000, "a\0b"])
def test_checkpoint_outside_the_checkpoint_directory_is_ignored(name: Any) -> None:
    message = {"number": 1, "members": [0], "master_port": 29500, "checkpoint": "/work/c/a", "checkpoint_name": name}
    attempt = validate_attempt(message, 4)
    assert attempt is not None and attempt["checkpoint_name"] == ""


def test_each_node_finds_the_checkpoint_below_its_own_directory() -> None:
    plan: Any = {"checkpoints": "/home/b/c"}
    attempt: Any = {"checkpoint": "/home/a/c/step-4", "checkpoint_name": "step-4"}
    assert local_checkpoint(plan, attempt) == "/home/b/c/step-4"
    without_name: Any = {**attempt, "checkpoint_name": ""}
    assert local_checkpoint(plan, without_name) == "/home/a/c/step-4"


def test_only_the_launchers_own_argument_is_changed() -> None:
    command = ["run", "-n", "1", "--size=1", "--", "job", "--size=9", "-n", "8"]
    changed = change_arguments(command, {"-n": "{nnodes}", "--size=": "{nnodes}", "--absent=": "x"}, {"nnodes": 4})
    assert changed == ["run", "-n", "4", "--size=4", "--", "job", "--size=9", "-n", "8"]
