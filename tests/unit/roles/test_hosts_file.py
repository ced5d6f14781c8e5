# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role says of nodes that site.yml has read for all roles."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.filter.etc_hosts import etc_hosts
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
NODES = [{"name": f"node{rank + 1}", "node_rank": rank, "address": f"10.1.0.{rank + 1}"} for rank in range(2)]


@pytest.mark.parametrize(("names", "refused"), [(("a", "b"), False), (("a", "a"), True)])
def test_nodes_with_one_name_are_refused_though_nothing_is_left_to_do(
    tmp_path: Path, names: tuple[str, str], refused: bool
) -> None:
    give_collection(tmp_path)
    hosts = {}
    for node, hostname in zip(NODES, names, strict=True):
        written = etc_hosts("127.0.0.1 localhost\n", NODES, own=node["name"], hostname=hostname)
        state = {
            "hostname": hostname,
            "hosts": b64encode(written.encode()).decode(),
            "sound": True,
            "cloud_init": {"present": False, "wanted": False, "config": "", "ours": ""},
            "differences": [],
        }
        hosts[node["name"]] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "node_address": node["address"],
            "muster_node_state": {"hosts_file": state},
        }
    (tmp_path / "machines.yml").write_text(json.dumps({"training": {"hosts": hosts, "vars": {"muster_site": True}}}))
    play = {"hosts": "training", "gather_facts": False, "roles": ["muster.training.hosts_file"]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    # --check, so that this machine keeps its /etc/hosts where the role should go on after all
    done = typed(tmp_path, ["ansible-playbook", "-i", "machines.yml", "play.yml", "--check"])
    assert (done.returncode == 2) == refused, done.stdout
    assert ("node1 and node2 both call themselves a. Needed: " in done.stdout) == refused, done.stdout
    assert "Read the names that each machine uses" not in done.stdout, done.stdout
