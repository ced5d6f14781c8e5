# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of the module cluster: creates, stops and removes a cluster's machines at a provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import AnyCloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cluster_snapshot
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    Machine,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.discover import to_cloud_terms
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import (
    Confirm,
    Removal,
    stop,
    teardown,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError, ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import JournalError, open_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.options import (
    WATCH_OPTIONS,
    refuse_active_runs,
    resolve_beside_inventory,
    validate_cluster_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.registry import (
    access_options,
    find_cloud,
    provider_options,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "provider": {"type": "str", "required": True},
    "cluster": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "stopped", "absent"], "default": "present"},
    "nnodes": {"type": "int", "default": 0},
    "machine_types": {"type": "list", "elements": "str", "default": []},
    "region": {"type": "str", "default": ""},
    "template": {"type": "str", "default": ""},
    "disk_gb": {"type": "int"},
    "ssh_public_key": {"type": "str", "default": ""},
    **WATCH_OPTIONS,
    "max_usd_per_hour": {"type": "float"},
    "price_per_hour": {"type": "float"},
    "on_shortage": {"type": "str", "choices": ["rollback", "wait"], "default": "rollback"},
    "wait_minutes": {"type": "float", "default": 20.0},
    "network_id": {"type": "str", "default": ""},
    "remove_drive": {"type": "bool", "default": False},
    "remove_templates": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "directory": {"type": "path", "default": ""},
    "runs_directory": {"type": "path", "default": ""},
    **provider_options(),
    **access_options(),
}


def build_result(
    cloud: AnyCloud, desired: DesiredCluster, initial: ClusterPlan, current: ClusterPlan, cost: ClusterCost
) -> dict[str, Any]:
    """Return the module's result, without `changed`."""
    names = ("name", "id", "state", "private_ip", "public_ip", "machine_type")
    drives = [
        {key: drive[key] for key in ("name", "id", "size_gb", "share", "username")} for drive in current["drives"]
    ]
    before, after = (
        json.dumps(cluster_snapshot(desired, initial, cost, later), indent=1) + "\n" for later in (False, True)
    )
    return {
        "cluster": desired["cluster"],
        "network": current["network"]["id"] if current["network"] else "",
        "nodes": [{key: machine[key] for key in names} for machine in current["nodes"]],  # type: ignore[literal-required]
        "drive": drives[0] if drives else None,
        "steps": [
            to_cloud_terms(cloud, f"{step['action']} {step['kind']} {step['name']}") for step in initial["steps"]
        ],
        "cost": dict(cost),
        "not_removed": [],
        "diff": {"before": before, "after": after},
    }


def apply_state(cloud: AnyCloud, args: dict[str, Any], confirm: Confirm, check: bool) -> dict[str, Any]:
    """Bring the cluster to the requested state and return the module's result.

    Raises:
        PlanRefusedError, ClusterError, JournalError, CloudError
    """
    if args["state"] == "present":
        request = cloud.complete_request(cloud.build_request(args, check))
        provisioned = provision(cloud, request, check)
        offer = provisioned.offer
        result = build_result(cloud, offer.desired, offer.plan, provisioned.current, provisioned.cost)
        return {"changed": provisioned.changed, **result}
    if args["state"] == "stopped":
        ended = stop(cloud, check, confirm)
    else:
        ended = teardown(cloud, Removal(args["remove_drive"], args["remove_templates"]), check, confirm)
    result = {
        "changed": ended.changed,
        **build_result(cloud, ended.desired, ended.initial, ended.current, ended.cost),
        "not_removed": ended.remaining,
        "msg": ended.message,
    }
    return {**result, "failed": True} if ended.remaining else result


class ActionModule(ActionBase):
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the cluster to the requested state; return the existing resources."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display, check = Display(), self._task.check_mode
        sources = task_vars.get("ansible_inventory_sources") or []
        directory = resolve_beside_inventory(args["directory"] or ".muster/clusters", sources)
        runs = resolve_beside_inventory(args["runs_directory"] or "runs", sources)

        def confirm(machines: Sequence[Machine]) -> None:
            if not args["force"]:
                refuse_active_runs(args["cluster"], runs, machines)

        def show(line: str) -> None:
            display.display(adapt_commands(line))

        try:
            cloud_type = find_cloud(args["provider"])
            cluster = validate_cluster_name(args["cluster"])
            if args["state"] == "present":
                cloud_type.build_request(args, check)  # report errors before searching for credentials
            client = cloud_type.connect(args, show, display.warning)
            with open_journal(directory, cluster, cloud_type.name, check) as journal:
                cloud = cloud_type(cluster, client, journal, args["network_id"], show)
                result = apply_state(cloud, args, confirm, check)
        except (PlanRefusedError, ClusterError, JournalError, CloudError) as error:
            raise UserError(adapt_commands(str(error))) from None
        if not self._task.diff:
            del result["diff"]
        return result
