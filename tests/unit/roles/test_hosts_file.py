# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's checks of the node state that site.yml reads for all roles."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.filter.etc_hosts import etc_hosts
from tests.unit.typed import CHECKOUT, give_collection, typed

pytestmark = pytest.mark.one_core
SITE_READ_CONDITION = yaml.safe_load((CHECKOUT / "playbooks" / "site.yml").read_text())[1]["vars"]["muster_site"]
READ_TASK = "muster.training.hosts_file : Read the names of each machine"
NODES: list[dict[str, Any]] = [
    {"name": f"node{rank + 1}", "node_rank": rank, "address": f"10.1.0.{rank + 1}"} for rank in range(2)
]


def run_play(directory: Path, names: tuple[str, str], *options: str) -> CompletedProcess[str]:
    """Run the role after site.yml has read two nodes with these host names, whose files are up to date."""
    give_collection(directory)
    hosts = {}
    for node, hostname in zip(NODES, names, strict=True):
        hosts_text = etc_hosts("127.0.0.1 localhost\n", NODES, node_name=node["name"], hostname=hostname)
        state = {
            "hostname": hostname,
            "hosts": b64encode(hosts_text.encode()).decode(),
            "permissions_ok": True,
            "cloud_init": {"present": False, "manages_hosts": False, "config": "", "override": ""},
            "differences": [],
        }
        hosts[node["name"]] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "node_address": node["address"],
            "muster_node_state": {"hosts_file": state},
        }
    (directory / "machines.yml").write_text(json.dumps({"training": {"hosts": hosts}}))
    role = {"role": "muster.training.hosts_file", "tags": "hosts_file"}
    site_play = {
        "hosts": "training",
        "gather_facts": False,
        "vars": {"muster_site": SITE_READ_CONDITION},
        "roles": [role],
    }
    (directory / "play.yml").write_text(json.dumps([site_play]))
    # --check protects this machine's /etc/hosts in case the role continues by mistake
    return typed(directory, ["ansible-playbook", "-i", "machines.yml", "play.yml", "--check", *options])


@pytest.mark.parametrize(("names", "refused"), [(("a", "b"), False), (("a", "a"), True)])
def test_duplicate_hostname_is_refused_even_without_pending_changes(
    tmp_path: Path, names: tuple[str, str], refused: bool
) -> None:
    completed = run_play(tmp_path, names)
    assert (completed.returncode == 2) == refused, completed.stdout
    message = "node1 and node2 have the same hostname a. Give each machine a unique name"
    assert (message in completed.stdout) == refused, completed.stdout
    assert f"TASK [{READ_TASK}]" not in completed.stdout, completed.stdout


def test_state_read_by_an_earlier_play_is_not_used_with_tags(tmp_path: Path) -> None:
    """With tags, site.yml skips reading, and the same command may have changed the nodes since."""
    assert f"TASK [{READ_TASK}]" in run_play(tmp_path, ("a", "b"), "--tags", "hosts_file").stdout
