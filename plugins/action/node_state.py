# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module node_state."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node, prepare_calls

FILES = {"type": "list", "elements": "str", "default": []}
ARGUMENT_SPEC = {
    "base_packages": {
        "type": "dict",
        "options": {
            "wait": {"type": "int", "default": 900},
            "packages": {"type": "list", "elements": "str", "default": []},
            "sources": {"type": "list", "elements": "str", "default": []},
            "sysctl": {"type": "dict", "default": {}},
            "shm_size": {"type": "str", "default": "50%"},
            "files": FILES,
        },
    },
    "nvidia_driver": {"type": "bool", "default": False},
    "hosts_file": {"type": "bool", "default": False},
    "firewall": {"type": "dict", "options": {"program": {"type": "path", "required": True}, "files": FILES}},
    "ssh_mesh": {
        "type": "dict",
        "options": {
            "user": {"type": "str", "default": ""},
            "key": {"type": "str", "default": ".ssh/id_ed25519", "no_log": False},
            "host_key": {"type": "path", "default": "/etc/ssh/ssh_host_ed25519_key", "no_log": False},
            "sshd_file": {"type": "path", "required": True},
            "client_file": {"type": "path", "required": True},
            "revoked_file": {"type": "path", "required": True},
            "verification_file": {"type": "path", "required": True},
            "mark": {"type": "str", "required": True},
            "log_in": {"type": "str", "default": ""},
        },
    },
    "ssh_logins": {
        "type": "dict",
        "options": {
            "user": {"type": "str", "required": True},
            "names": {"type": "list", "elements": "str", "required": True},
        },
    },
    "slurm": {
        "type": "dict",
        "options": {
            "packages": {"type": "list", "elements": "str", "required": True},
            "gpu_files": {"type": "str", "default": "/dev/nvidia[0-9]*"},
            "verification_file": {"type": "path", "required": True},
            "files": FILES,
        },
    },
}

ENTRY = "_facts.role_state"
prepare_calls(ENTRY)


class ActionModule(ActionBase):
    """Action plugin that makes one read-only call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the requested states."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, options_by_part = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        request = {name: options for name, options in options_by_part.items() if options}
        return {"changed": False, **call_node(self, ENTRY, request, task_vars)}
