"""Slurm chooses the nodes of a launch: the tasks of the role, with stand-ins for Slurm's programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.typed import give_collection

pytestmark = pytest.mark.one_core
PROGRAMS = {
    "scontrol": 'case "$*" in "show node"*) cat "$FAKE/nodes";; "show hostnames"*) cat "$FAKE/chosen";; '
    '"show job"*) if [ -e "$FAKE/looked" ]; then '
    'echo "JobState=RUNNING NodeList=x BatchHost=$(head -n 1 "$FAKE/chosen")"; '
    'else touch "$FAKE/looked"; echo "JobState=PENDING Reason=Resources"; fi;; esac',
    "sbatch": 'cat > /dev/null; echo "$*" > "$FAKE/options"; echo 12',
    "squeue": "echo 12",
    "scancel": 'echo "$*" > "$FAKE/cancelled"',
}
NODES = "NodeName=n0 NodeAddr=127.0.0.1\nNodeName=n1 NodeAddr=127.0.0.2\nNodeName=n9 NodeAddr=10.9.9.9\n"
INVENTORY = {
    "training": {
        "hosts": {
            f"node{number}": {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "node_address": f"127.0.0.{number + 1}",
            }
            for number in range(2)
        }
    }
}
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {muster_slurm_chooses: true}
  tasks:
    - ansible.builtin.include_role: {name: muster.training.launch, tasks_from: allocate, rolespec_validate: false}
    - ansible.builtin.debug:
        msg: "chosen {{ muster_allocation.names | join(',') }}, batch {{ muster_allocation.batch }}"
"""


def choose(directory: Path, chosen: str, **variables: object) -> str:
    """Run the tasks of the role with these nodes as Slurm's choice; return the output."""
    give_collection(directory)
    for name, text in PROGRAMS.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    for name, text in {
        "nodes": NODES,
        "chosen": chosen,
        "inventory.json": json.dumps(INVENTORY),
        "play.yml": PLAY,
    }.items():
        (directory / name).write_text(text)
    completed = subprocess.run(
        ["ansible-playbook", "-i", "inventory.json", "play.yml", "-e", json.dumps(variables)],
        cwd=directory,
        env={
            "PATH": f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "FAKE": str(directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return " ".join((completed.stdout + completed.stderr).split())


def test_nodes_are_those_chosen_by_slurm(tmp_path: Path) -> None:
    output = choose(tmp_path, "n1\nn0\n", nnodes=2, launch_slurm_partition="gpu")
    assert "[muster] queued as Slurm job 12, position 1, reason Resources" in output
    assert "[muster] Slurm job 12 was allocated node0, node1" in output
    assert "chosen node0,node1, batch node1" in output, "the batch script runs on Slurm's first node"
    options = (tmp_path / "options").read_text().split()
    assert {"--nodes=2", "--partition=gpu", "--exclude=n9"} <= set(options), "n9 is not in the inventory"


@pytest.mark.parametrize(
    ("chosen", "variables", "expected"),
    [
        ("n1\n", {}, "Slurm cannot choose the nodes without knowing how many to choose: add -e nnodes=N"),
        ("n1\n", {"nnodes": 1, "launch_slurm_requeue": 2}, "cannot be requeued"),
        ("n9\n", {"nnodes": 1}, "Slurm has chosen n9 at 10.9.9.9, which is not in the inventory"),
    ],
)
def test_problems_are_explained(tmp_path: Path, chosen: str, variables: dict[str, object], expected: str) -> None:
    assert expected in choose(tmp_path, chosen, **variables)
    assert (tmp_path / "cancelled").exists() is ("n9" in expected), "nodes that cannot be used are given back"
