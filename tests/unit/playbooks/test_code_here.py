# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A launch syncs changed files to the node before it runs them, and keeps job outputs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.unit.supervised import free_port, own_network
from tests.unit.typed import give_collection, typed

pytestmark = [
    pytest.mark.one_core,
    pytest.mark.skipif(os.geteuid() != 0, reason="the role code asks for root"),
    pytest.mark.skipif(not shutil.which("rsync"), reason="the role code needs rsync"),
]


def launch(directory: Path, *more: str) -> str:
    completed = typed(directory, ["ansible-playbook", "muster.training.launch", "-i", "machine.yml", *more])
    assert completed.returncode == 0, completed.stdout
    return completed.stdout


def test_launch_runs_the_edited_script(tmp_path: Path) -> None:
    give_collection(tmp_path)
    settings = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "launch_node_directory": str(tmp_path / "runs"),
        "launch_python": sys.executable,
        "launch_launcher": "env",
        "launch_script": "train.py",
        "code_source": str(tmp_path / "project"),
        "code_directory": str(tmp_path / "node"),
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
    }
    hosts = {"a": {"node_address": f"{own_network(4)}.1", "node_slots": 1}}
    (tmp_path / "machine.yml").write_text(json.dumps({"training": {"hosts": hosts, "vars": settings}}))
    (tmp_path / "project" / "outputs").mkdir(parents=True)
    (tmp_path / "project" / "train.py").write_text("print('as it was')\n")
    (tmp_path / "project" / "outputs" / "mine").touch()
    shutil.copytree(tmp_path / "project", tmp_path / "node", ignore=shutil.ignore_patterns("outputs"))
    (tmp_path / "node" / "ckpt.pt").write_text("step 20")
    assert "code-older" not in launch(tmp_path, "--check")

    (tmp_path / "project" / "train.py").write_text("print('edited')\n")
    os.utime(tmp_path / "project" / "train.py", (2_000_000_000, 2_000_000_000))
    output = launch(tmp_path, "--check")
    assert "WARNING code-older on a: " in output and "train.py is older on the node" in output
    assert "not copied because code is as_is: train.py is older on the node" in launch(
        tmp_path, "--check", "-e", "code=as_is"
    )
    assert (tmp_path / "node" / "train.py").read_text() == "print('as it was')\n"

    output = launch(tmp_path)
    assert "copying the code from " in output and "\nedited\n" in output and "code-older" not in output
    record = tmp_path / "runs" / "latest" / "code.json"
    assert json.loads(record.read_text())["files"].keys() == {"train.py"}
    plan = json.loads((record.parent / "plan.json").read_text())
    assert plan["program_sha256"] == hashlib.sha256(b"print('edited')\n").hexdigest()
    node_files = {path.name for path in (tmp_path / "node").iterdir()}
    assert node_files == {"train.py", "ckpt.pt", ".muster-code.json"}
