"""Each launcher starts the ranks of the rank table, on hosts with 127.0.1.1 as their own address and unknown peers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

RANK_REPORT = re.compile(r"I am rank (\d+) of (\d+) local (\d+) on (\S+)")


def test_own_name_is_loopback_and_peer_names_do_not_resolve(lab: Lab, nodes: list[str]) -> None:
    for name in nodes:
        hosts_entry = lab.exec(name, ["getent", "hosts", name]).stdout
        assert hosts_entry.startswith("127.0.1.1"), hosts_entry
    assert lab.exec("node1", ["getent", "hosts", "node2"]).returncode != 0


def rank_placements(lab: Lab, run_id: str) -> list[tuple[int, int, int, str]]:
    """Return the reports of all ranks of a run, from all nodes' logs: rank, world size, local rank, host."""
    assert drive.run("logs.yml", lab.inventory, run_id=run_id, fetch=True).rc == 0
    folder = lab.inventory.parent / "runs" / run_id / "logs"
    texts = [path.read_text() for path in folder.rglob("*.log")]
    result = {match for text in texts for match in RANK_REPORT.findall(text)}
    return sorted((int(rank), int(size), int(local), host) for rank, size, local, host in result)


@pytest.mark.thorough  # molecule/launchers, and tests/unit/oracles with unequal slots
@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_torchrun_starts_ranks_on_nodes_with_unequal_slots(
    lab: Lab, nodes: list[str], backend: str, tmp_path: Path
) -> None:
    more = tmp_path / "slots.yml"
    more.write_text("training: {hosts: {node1: {node_slots: 2}, node2: {node_slots: 1}, node3: {node_slots: 1}}}\n")
    options = ("-i", str(more))
    play = drive.launch(
        lab, "first_ranks.py", run_id=backend, nnodes=3, launch_rdzv_backend=backend, options=options
    ).wait()
    assert play.rc == 0, play.output
    master = lab.node("node1").address
    assert f"GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME==eth0 MASTER_ADDR={master}" in play.output, play.output
    assert rank_placements(lab, backend) == [
        (0, 4, 0, "node1"),
        (1, 4, 1, "node1"),
        (2, 4, 0, "node2"),
        (3, 4, 0, "node3"),
    ]
    second = drive.run("logs.yml", lab.inventory, run_id=backend, rank=1)  # the second rank on its node
    reports = re.findall(r"^I am rank (\d+) of 4 local (\d+)", second.output, re.MULTILINE)
    assert second.rc == 0 and reports == [("1", "1")], second.output


def test_env_launcher_sets_environment_of_each_node(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "first_node.py", run_id="env", launch_launcher="env", nnodes=3, nproc_per_node=2).wait()
    assert play.rc == 0, play.output
    assert drive.run("logs.yml", lab.inventory, run_id="env", fetch=True).rc == 0
    for number, name in enumerate(nodes[:3]):
        text = (lab.inventory.parent / f"runs/env/logs/node{number}/launcher.log").read_text()
        master = lab.node("node1").address
        assert (
            f"{name} NODE_RANK={number} WORLD_SIZE=6 MASTER_ADDR={master} MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0"
            in text
        )
        assert "set although they must not be: []" in text


@pytest.mark.thorough  # tests/unit/roles/test_launch_environment.py
def test_wandb_settings_are_in_the_jobs_environment(lab: Lab, nodes: list[str]) -> None:
    settings: dict[str, Any] = {
        "wandb_project": "demo",
        "wandb_entity": "us",
        "launch_environment": {"WANDB_ENTITY": "me"},
    }
    play = drive.run(
        "launch.yml",
        lab.inventory,
        nnodes=1,
        launch_launcher="env",
        launch_no_python=True,
        launch_script="/usr/bin/env",
        **settings,
    )
    assert play.rc == 0, play.output
    variables = [line for line in play.output.splitlines() if line.startswith("WANDB_")]
    assert sorted(variables) == ["WANDB_ENTITY=me", "WANDB_PROJECT=demo"], "what the job itself is given counts"


@pytest.mark.thorough  # molecule/preflight tests this, and a launch runs the same checks
def test_env_launcher_refuses_unequal_slots(lab: Lab, nodes: list[str], tmp_path: Path) -> None:
    more = tmp_path / "slots.yml"
    more.write_text("training: {hosts: {node1: {node_slots: 2}}}\n")
    play = drive.launch(lab, "first_node.py", launch_launcher="env", nnodes=2, options=("-i", str(more))).wait()
    assert play.rc == 2 and "node1 2, node2 1" in play.output, play.output


@pytest.mark.thorough
def test_lightning_runs_under_torchrun(lab: Lab, nodes: list[str]) -> None:
    """The scenario `launchers` runs it under env, and checks its loss."""
    play = drive.launch(lab, "with_lightning.py", "2", "2", run_id="lightning", nnodes=2, nproc_per_node=2).wait()
    assert play.rc == 0, play.output
    assert rank_placements(lab, "lightning") == [
        (0, 4, 0, "node1"),
        (1, 4, 1, "node1"),
        (2, 4, 0, "node2"),
        (3, 4, 1, "node2"),
    ]


@pytest.mark.thorough  # molecule/preflight launches a module
def test_module_is_launched(lab: Lab, nodes: list[str]) -> None:
    play = drive.start(
        "launch.yml", lab.inventory, launch_module="platform", launch_launcher="env", nnodes=2, run_id="module"
    ).wait()
    assert play.rc == 0 and "Linux" in play.output, play.output


def test_check_mode_shows_plan_and_writes_nothing(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(
        lab,
        "loop.py",
        run_id="checked",
        nnodes=2,
        options=("--check",),
        launch_environment={"API_KEY": "hunter2-hunter2"},
    ).wait()
    assert play.rc == 0, play.output
    for name in nodes[:2]:
        assert drive.traces(lab, name) == ""
        assert lab.exec(name, ["test", "-e", "/home/muster/.muster/runs/checked"]).returncode != 0
    assert not (lab.inventory.parent / "runs" / "checked").exists()
    assert play.output.count("torch.distributed.run") >= 2  # each node's command
    for file in ("plan.json", "environment.json", "token"):
        assert play.output.count(f"+++ after: {file}") == 2, play.output
    assert "API_KEY" in play.output and "hunter2" not in play.output


@pytest.mark.thorough  # tests/unit/playbooks/test_record.py
def test_plan_is_recorded_as_json(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "first_node.py", run_id="data", nnodes=2, launch_launcher="env").wait()
    assert play.rc == 0, play.output
    plan = json.loads((lab.inventory.parent / "runs/data/plan.json").read_text())
    assert [(node["name"], node["slots"], node["first_rank"]) for node in plan["nodes"]] == [
        ("node1", 1, 0),
        ("node2", 1, 1),
    ]
