# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node state that the role depends on, and process accounting, which root enables once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.filter.driver_decision import driver_decision
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
SMI = """#!/bin/sh
case "$*" in
  "--query-gpu=accounting.mode --format=csv,noheader") cat "$0.mode" ;;
  "-am 1") sed -i s/Disabled/Enabled/ "$0.mode" ;;
  *) exit 9 ;;
esac
"""


def test_process_accounting_is_enabled_once_where_supported(tmp_path: Path) -> None:
    give_collection(tmp_path)
    program, mode = tmp_path / "nvidia-smi", tmp_path / "nvidia-smi.mode"
    program.write_text(SMI)
    program.chmod(0o755)
    mode.write_text("Disabled\n[N/A]\n")
    role = {"name": "muster.training.nvidia_driver", "tasks_from": "accounting"}
    state = {"nvidia_driver": {"gpus": {"count": 2, "smi": {"path": str(program)}}}}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            "muster_node_state": state,
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
        },
        "tasks": [{"name": "Keep account", "ansible.builtin.include_role": role}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    for options, changed, expected in ((["--check"], 0, "Disabled"), ([], 1, "Enabled"), ([], 0, "Enabled")):
        completed = typed(tmp_path, ["ansible-playbook", "-i", "localhost,", "-c", "local", "play.yml", *options])
        assert completed.returncode == 0 and f"changed={changed} " in completed.stdout, completed.stdout
        assert mode.read_text() == f"{expected}\n[N/A]\n"


def test_driver_step_depends_only_on_freshly_read_state(tmp_path: Path) -> None:
    """site.yml reads the nodes minutes earlier, and a run may have started in the meantime."""
    give_collection(tmp_path)
    # the role would fail with a driver that only its owner can remove
    gpus = {"pci": 1, "driver": {"loaded": "535.1", "library": "570.2", "on_disk": "570.2"}, "processes": []}
    driver = {"system": "", "packages": [], "modules": {"6.8": "570.2"}, "kernel": "6.8", "newest_kernel": "6.8"}
    state = {
        "gpus": {**gpus, "smi": {"state": "mismatch", "output": ""}, "nouveau": False},
        "driver": {**driver, "dkms": [], "has_dkms": True, "available": {}},
        "runs": [],
    }
    variables = {
        "muster_site": True,
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    play = {"hosts": "localhost", "gather_facts": False, "roles": ["muster.training.nvidia_driver"]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    inventory = {"all": {"hosts": {"localhost": {**variables, "muster_node_state": {"nvidia_driver": state}}}}}
    (tmp_path / "machines.yml").write_text(json.dumps(inventory))
    decision = driver_decision(state)
    assert decision["action"] == "refuse", decision
    # --check protects the driver and packages on a machine that has a GPU
    completed = typed(tmp_path, ["ansible-playbook", "-i", "machines.yml", "-c", "local", "play.yml", "--check"])
    assert completed.returncode == 0, completed.stdout
    assert "localhost: nothing: " in completed.stdout and decision["reason"] not in completed.stdout, completed.stdout
