# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keep.yml after a real node loss: it runs other playbooks, and the run continues on a machine from the inventory.

Only site.yml is replaced, because it would set up this machine.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import CHECKOUT, begun, killed, typed

# Each rank records its number and waits for a file.
JOB = """
import os, pathlib, time
print(f"attempt {os.environ['MUSTER_ATTEMPT']} of rank {os.environ['NODE_RANK']}", flush=True)
while not pathlib.Path(__file__).with_name("end").exists():
    time.sleep(0.05)
"""
SITE = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: set up
        dest: "{{ playbook_dir }}/../{{ inventory_hostname }}.set-up"
        mode: "0600"
"""


def replace_site(directory: Path) -> Path:
    """Replace site.yml in the collection that typed() uses; return the directory where it records machines."""
    link = directory / "collections" / "ansible_collections" / "muster" / "training"
    link.unlink()
    (link / "playbooks").mkdir(parents=True)
    for entry in CHECKOUT.iterdir():
        if entry.name != "playbooks" and not entry.name.startswith("."):
            (link / entry.name).symlink_to(entry)
    for playbook in (CHECKOUT / "playbooks").iterdir():
        if playbook.name != "site.yml":
            (link / "playbooks" / playbook.name).symlink_to(playbook)
    (link / "playbooks" / "site.yml").write_text(SITE)
    return link


def log(directory: Path, node: str, attempt: int) -> str:
    path = directory / "nodes" / "first" / node / (f"attempt-{attempt}" if attempt else "") / "launcher.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.thorough  # test_keep_provision.py adds a machine in the same way; test_keeper.py
@pytest.mark.one_core
def test_machine_of_the_inventory_replaces_a_lost_node(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"launch_restarts": 2, "launch_restart_wait": "30m", "launch_report": False}
    two_nodes(tmp_path, 40, launch_launcher="env", launch_script=f"{tmp_path}/job.py", **settings)
    collection = replace_site(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    machines = tmp_path / "machines.yml"
    third = f"    local2: {{node_address: {_third_address(machines.read_text())}}}\n"
    machines.write_text(machines.read_text().replace("  vars:\n", f"{third}  vars:\n", 1))
    command = ["ansible-playbook", "-i", "machines.yml", "-e", "run_id=first"]
    keep = None
    try:
        options = ["-e", "detach=true", "-e", "nnodes=2"]
        launched = typed(tmp_path, [*command, "muster.training.launch", *options])
        assert launched.returncode == 0, launched.stdout
        eventually(lambda: "rank 0" in log(tmp_path, "node0", 0) and "rank 1" in log(tmp_path, "node1", 0), 600)
        keep = begun(tmp_path, [*command, "muster.training.keep", "-e", "keep_interval=1"])
        record = tmp_path / "runs" / "first"
        eventually(lambda: (record / "keep.json").exists() or keep.poll() is not None, 240)
        supervisor = json.loads((tmp_path / "nodes" / "first" / "node1" / "supervisor.json").read_text())
        os.kill(supervisor["pid"], signal.SIGKILL)
        eventually(lambda: "attempt 1 of rank 0" in log(tmp_path, "node0", 1) or keep.poll() is not None, 600)
        eventually(lambda: "attempt 1 of rank 1" in log(tmp_path, "node1", 1), 240)
        assert (collection / "local2.set-up").exists() and not (collection / "local1.set-up").exists()
        plan = json.loads((record / "plan.json").read_text())
        assert [node["name"] for node in plan["nodes"]] == ["local0", "local2"]
        (tmp_path / "end").touch()
        output, _errors = keep.communicate(timeout=600)
        assert keep.returncode == 0, output
        steps = [line.split(maxsplit=2)[2] for line in output.splitlines() if line.startswith("[keep] ")]
        assert steps[1:4] == ["setting up local2", "adding local2 to the run", "the run has ended"], output
    finally:
        if keep is not None and keep.poll() is None:
            killed(keep)
        for name in ("local0", "local1", "local2"):
            request = {"run_id": "first", "runs_directory": f"{tmp_path}/nodes", "node": name, "user": ""}
            run_stop.stop({**request, "check": False, "replace": False})


def _third_address(machines: str) -> str:
    """Return an address different from those of the two nodes."""
    first = next(line.split()[-1] for line in machines.splitlines() if "node_address" in line)
    return first.rpartition(".")[0] + ".9"
