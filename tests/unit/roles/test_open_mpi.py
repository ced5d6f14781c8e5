# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verification of Open MPI, which needs free nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.typed import give_collection, typed


def test_verification_is_skipped_while_a_run_is_active(tmp_path: Path) -> None:
    give_collection(tmp_path)
    directory = tmp_path / "runs" / "trains" / "node0"
    directory.mkdir(parents=True)
    supervisor = directory / "supervisor.py"
    supervisor.write_text("import time\nprint(flush=True)\ntime.sleep(600)\n")
    role = {"name": "muster.training.open_mpi", "tasks_from": "verify"}
    tasks = [
        {"ansible.builtin.set_fact": {"__open_mpi_version": {"stdout_lines": ["mpirun (Open MPI) 4.1.4"]}}},
        {"ansible.builtin.include_role": role},
        {"ansible.builtin.debug": {"msg": "the rest is done"}},
    ]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "training", "gather_facts": False, "tasks": tasks}]))
    settings = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"training": {"hosts": {"node1": {}, "node2": {}}, "vars": settings}}
    (tmp_path / "machines.yml").write_text(json.dumps(inventory))
    values = json.dumps({"__open_mpi_directory": str(tmp_path), "replace": True})
    argv = [sys.executable, str(supervisor), str(directory), "trains", "10.0.0.1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as run:
        try:
            assert run.stdout is not None and run.stdout.readline()
            completed = typed(tmp_path, ["ansible-playbook", "play.yml", "-i", "machines.yml", "-e", values])
            assert run.poll() is None
        finally:
            run.kill()
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 0, completed.stdout
    assert "Open MPI was not verified, because " in output and "run trains" in output, completed.stdout
    assert " active on node1, node2; everything else continues." in output and "the rest is done" in output
    assert not (tmp_path / "open_mpi_proof").exists(), "it does not count as verified"
