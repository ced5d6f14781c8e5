# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module node_facts."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._on_node import call_node

# Which of our files a part needs on the node; what is sent has to be compiled there.
FILES = {
    "gpus": ["_node_commands", "_node_gpus"],
    "driver": ["_node_commands", "_node_driver"],
    "software": ["_node_commands", "_node_software", "_deepspeed_config"],
    "storage": ["_node_commands", "_data_mounts", "_node_storage"],
    "system": ["_node_commands", "_node_system"],
    "names": [],
    "resolver": [],
    "connections": ["_peer_probe"],
    "ssh": ["_node_commands", "_node_ssh"],
}
PARTS = list(FILES)
LEAST_LIFETIME = 10  # seconds for which a node awaits its peers; with 16 forks Ansible asks some 20 nodes in a second
ARGUMENT_SPEC = {
    "address": {"type": "str", "default": ""},
    "peers": {"type": "dict", "default": {}},
    "ports": {"type": "list", "elements": "int", "default": []},
    "interpreter": {"type": "str", "default": ""},
    "script": {"type": "str", "default": ""},
    "args": {"type": "list", "elements": "str", "default": []},
    "working_directory": {"type": "str", "default": ""},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "run_id": {"type": "str", "default": ""},
    "user": {"type": "str", "default": ""},
    "mounts": {"type": "list", "elements": "str", "default": []},
    "parts": {
        "type": "list",
        "elements": "str",
        "choices": PARTS,
        "default": ["gpus", "software", "storage", "system", "names"],
    },
    "probe": {
        "type": "dict",
        "options": {
            "token": {"type": "str", "required": True, "no_log": True},
            "candidates": {"type": "list", "elements": "int", "required": True},
            "lifetime": {"type": "int"},
        },
    },
}


class ActionModule(ActionBase):
    """One call to the node, nothing is changed there."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts of the node."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, request = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if "connections" in request["parts"] and not (request["probe"] and request["address"] and request["peers"]):
            raise AnsibleActionFail("the part 'connections' needs probe, address and peers")
        request["node"] = task_vars["inventory_hostname"]
        if request["probe"] and request["probe"]["lifetime"] is None:
            request["probe"]["lifetime"] = LEAST_LIFETIME + len(request["peers"]) // 4
        files = dict.fromkeys(["_run", "_node_network", *(name for part in request["parts"] for name in FILES[part])])
        if request["ports"]:  # who holds one may have to be asked of a command
            files["_node_commands"] = None
        before = time.time()
        try:
            answer = call_node(self, [*files, "_node_facts"], request, task_vars)
        except AnsibleActionFail as problem:  # as a result, so that failed_when can leave the judgement to others
            return {"failed": True, "facts": None, "msg": str(problem)}
        answer["facts"]["clock"].update(before=before, after=time.time())
        return answer
