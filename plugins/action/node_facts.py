# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module node_facts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.module_utils._facts.imports import TIMEOUT as IMPORT_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._checks.job_request import JOB_SPEC, job_request
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import match_failure
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node, prepare_calls
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import parse_arguments

PARTS = [
    "gpus",
    "links",
    "health",
    "software",
    "storage",
    "system",
    "checkout",
    "names",
    "resolver",
    "connections",
    "ssh",
    "checkpoints",
    "provenance",
]
# Seconds for a call to a slow node: 10 to log in, 6 for mounts that hang, 10 for nvidia-smi. Nodes that are queried one
# after another are rarely all that slow: 2 to log in, 10 for nvidia-smi without persistence mode.
SLOW_CALL = 30
LATER_BATCH = 15
STARTS_PER_SECOND = 4  # calls that a slow controller can start per second; 20 is typical with 16 forks
DEFAULT_FORKS = 5  # Ansible's default
ARGUMENT_SPEC = {
    "address": {"type": "str", "default": ""},
    "peers": {"type": "dict", "default": {}},
    "ports": {"type": "list", "elements": "int", "default": []},
    "interpreter": {"type": "str", "default": ""},
    "script": {"type": "str", "default": ""},
    "args": {"type": "raw", "default": []},
    "working_directory": {"type": "str", "default": ""},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "run_id": {"type": "str", "default": ""},
    "user": {"type": "str", "default": ""},
    "mounts": {"type": "list", "elements": "str", "default": []},
    "checkpoints": {"type": "str", "default": ""},
    "code": {"type": "dict", "default": {}},
    "image": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "engine": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
        },
    },
    "job": {"type": "dict", "options": JOB_SPEC},
    "parts": {
        "type": "list",
        "elements": "str",
        "choices": PARTS,
        "default": ["gpus", "software", "storage", "system", "names"],
    },
    "probe": {
        "type": "dict",
        "options": {
            "token_file": {"type": "path", "required": True},
            "candidates": {"type": "list", "elements": "int", "required": True},
            "lifetime": {"type": "int"},
        },
    },
}

ENTRY = "_facts.read"
prepare_calls(ENTRY)


def probe_lifetime(nodes: int, forks: int, import_test: bool = False) -> int:
    """Return how many seconds a node waits for its peers if Ansible queries `forks` nodes at a time.

    The first node must still be waiting when the last one is queried. A node that has met all its peers stops at once.
    import_test: whether each query may take as long as the imports of the job.
    """
    turns = -(-nodes // max(1, forks))
    later_batches = max(0, turns - 1) * (LATER_BATCH + int(IMPORT_TIMEOUT if import_test else 0))
    return SLOW_CALL + later_batches + nodes // STARTS_PER_SECOND


def has_import_test(request: Mapping[str, Any]) -> bool:
    """Return whether the nodes will test a job's imports."""
    job = request["job"]
    return bool(job and job["import_test"] and (request["script"] or job["module"]) and not job["no_python"])


class ActionModule(ActionBase):
    """Action plugin that makes one read-only call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the node's facts."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, request = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if "connections" in request["parts"] and not (request["probe"] and request["address"] and request["peers"]):
            raise AnsibleActionFail("the part 'connections' needs probe, address and peers")
        request.update(node=task_vars["inventory_hostname"], read_only=True)
        try:
            request["args"] = parse_arguments(request["args"], self._loader)
        except ValueError:  # launch_plan and check_cluster report it, once for all nodes
            request["args"] = []
        if request["probe"]:
            request["probe"]["token"] = Path(request["probe"].pop("token_file")).read_text(encoding="utf-8")
        if request["probe"] and request["probe"]["lifetime"] is None:
            forks = int(task_vars.get("ansible_forks") or DEFAULT_FORKS)
            request["probe"]["lifetime"] = probe_lifetime(len(request["peers"]), forks, has_import_test(request))
        if request["code"].get("problem"):  # launch_plan and check_cluster report it
            request["code"] = {}
        if request["image"] and not request["image"]["name"]:
            request["image"] = None
        request["job"] = job_request(request["job"]) if request["job"] else {}
        before = time.time()
        try:
            reply = call_node(self, ENTRY, request, task_vars)
        except AnsibleError as error:
            # Return the failure so that, with failed_when and ignore_unreachable, a later task evaluates it once.
            if self._task.ignore_unreachable and (
                isinstance(error, AnsibleConnectionFailure) or match_failure(str(error))
            ):
                return {"changed": False, "facts": None, "msg": str(error)}
            if isinstance(error, AnsibleConnectionFailure):
                raise
            return {"failed": True, "facts": None, "msg": str(error)}
        reply["facts"]["clock"].update(before=before, after=time.time())
        return reply
