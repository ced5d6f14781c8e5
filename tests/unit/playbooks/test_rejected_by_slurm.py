"""A launch whose job Slurm rejects after the run has been written to all nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.supervised import free_port, own_network
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
NAMES = ("a", "b")
NODES = "".join(f"NodeName={name} NodeAddr={own_network(62)}.{number}\\n" for number, name in enumerate(NAMES, 1))
PROGRAMS = {
    "scontrol": f"printf '{NODES}'",
    "sinfo": "exit 0",
    "squeue": "exit 0",
    "scancel": "exit 0",
    "sbatch": 'echo "sbatch: error: invalid account" >&2; exit 1',
}


def test_rejected_run_is_removed_from_all_nodes(tmp_path: Path) -> None:
    give_collection(tmp_path)
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    (tmp_path / "job.py").touch()
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "launch_python": "{{ ansible_playbook_python }}",
        "node_slots": 1,
        "launch_node_directory": f"{tmp_path}/nodes",
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
        "launch_launcher": "env",
        "launch_script": f"{tmp_path}/job.py",
        "launch_scheduler": "slurm",
        "launch_skip": ["busy"],
    }
    hosts = {name: {"node_address": f"{own_network(62)}.{number}"} for number, name in enumerate(NAMES, 1)}
    (tmp_path / "machines.yml").write_text(yaml.safe_dump({"training": {"hosts": hosts, "vars": settings}}))
    command = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", "-e", "run_id=refused"]
    completed = typed(tmp_path, command)
    assert completed.returncode and "invalid account" in completed.stdout, completed.stdout
    assert "Its name can be used again" in " ".join(completed.stdout.split())
    assert not list((tmp_path / "nodes").glob("refused/node*")), completed.stdout
