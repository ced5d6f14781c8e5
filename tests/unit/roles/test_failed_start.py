# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a failed start, the cost of each task per node is independent of the number of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

LAUNCH = Path(__file__).resolve().parents[3] / "roles" / "launch"
HOSTS = ["a", "b", "c"]
STARTED, FAILED = {"changed": True, "directory": "/runs/x/node0"}, {"failed": True, "msg": "no space left"}
ON_ALL = {"complete": True, "by_node": dict.fromkeys(HOSTS, STARTED)}


class CountedHosts(Mapping[str, Any]):
    """The variables of all hosts, with a count of reads."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables
        self.reads = 0

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return self.variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)


def load(path: str) -> Any:
    return DataLoader().load_from_file(str(LAUNCH / path), trusted_as_template=True)


@pytest.mark.parametrize(
    ("registered", "expected"),
    [
        pytest.param(dict.fromkeys(HOSTS, ON_ALL), ["a", "b", "c"], id="rejected by Slurm"),
        pytest.param({"a": STARTED, "b": FAILED, "c": STARTED}, ["a", "c"], id="failed on a node"),
        pytest.param({"a": STARTED, "b": FAILED}, ["a"], id="unreached"),
        pytest.param(dict.fromkeys(HOSTS, {"complete": False, "by_node": {}}), [], id="no call"),
    ],
)
def test_each_node_reads_its_own_result_only(registered: dict[str, Any], expected: list[str]) -> None:
    (block,) = (task for task in load("tasks/start.yml") if "rescue" in task)
    hostvars = CountedHosts(
        {name: {"__launch_starts": registered[name]} if name in registered else {} for name in HOSTS}
    )
    common_variables = {**load("vars/main.yml"), **block["vars"], "hostvars": hostvars, "ansible_play_hosts_all": HOSTS}
    common_variables["__launch_plan"] = {"run_id": "x"}
    removal = block["rescue"][0]
    removed_from = []
    for name in HOSTS:
        variables = {**common_variables, **hostvars.variables[name], "inventory_hostname": name}
        templar = Templar(loader=DataLoader(), variables=variables)
        if templar.evaluate_conditional(removal["when"]):
            removed_from.append(name)
        for task in block["rescue"][1:]:
            if not task.get("run_once"):
                templar.template(task["ansible.builtin.fail"])
    assert removed_from == expected
    assert hostvars.reads == 0
