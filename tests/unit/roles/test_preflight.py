# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role preflight checks the job that the role launch would start, also in a container."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.action import check_cluster
from tests.unit.supervised import own_network
from tests.unit.typed import CHECKOUT, give_collection, typed

ROLES = CHECKOUT / "roles"


def read_defaults(role: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())
    return values


def test_role_passes_every_option_to_check_cluster() -> None:
    tasks = yaml.safe_load((ROLES / "preflight" / "tasks" / "main.yml").read_text())
    (options,) = [task["muster.training.check_cluster"] for task in tasks if "muster.training.check_cluster" in task]
    assert set(options) == set(check_cluster.ARGUMENT_SPEC) - {"facts"}  # facts_from replaces it


# launch_* defaults to these preflight_* variables, and both playbooks use nnodes to choose nodes.
INDEPENDENT_DEFAULTS = {"preflight_mounts", "preflight_skip", "preflight_thresholds", "preflight_nnodes"}


def test_preflight_defaults_come_from_launch_settings() -> None:
    launch = read_defaults("launch")
    for name, value in read_defaults("preflight").items():
        launch_name = f"launch_{name.removeprefix('preflight_')}"
        if launch_name in launch and name not in INDEPENDENT_DEFAULTS:
            assert re.match(rf"{{{{ {launch_name} \| default\(", str(value)), (
                f"{name} does not default to {launch_name}"
            )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create an empty home directory with the collection, two local nodes, and an engine."""
    give_collection(tmp_path)
    (tmp_path / "nodes.yml").write_text(
        f"training: {{hosts: {{a: {{node_address: {own_network(4)}.1}}, b: {{node_address: {own_network(4)}.2}}}},"
        " vars: {ansible_connection: local, node_slots: 1}}\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "docker").chmod(0o755)
    return tmp_path


def run_preflight(directory: Path, **variables: Any) -> dict[str, Any]:
    """Run the playbook; return the findings by id."""
    target = directory / "found.json"
    extra_variables = json.dumps({**variables, "preflight_json": str(target)})
    completed = typed(
        directory, ["ansible-playbook", "muster.training.preflight", "-i", "nodes.yml", "-e", extra_variables]
    )
    assert target.exists(), completed.stdout
    return {finding["id"]: finding for finding in json.loads(target.read_text())["findings"]}


def test_interpreter_of_an_image_is_not_checked_on_the_nodes(directory: Path) -> None:
    variables = {"launch_image": "torch:1", "launch_python": "/opt/conda/envs/none/bin/python"}
    software = {"interpreter-missing", "interpreter-broken", "torch-missing", "program-missing", "loopback-address"}
    assert not software & set(run_preflight(directory, **variables))
    findings = run_preflight(directory, **{**variables, "launch_image": ""})
    assert findings["interpreter-missing"]["nodes"] == ["a", "b"]
