# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of the module cluster_info, which lists an account's clusters and their cost."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import limit_seconds, normalize_limit
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost_overview import (
    format_overview,
    summarize_clusters,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import new_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.registry import access_options, find_cloud
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, format_result, run_query
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "provider": {"type": "str", "required": True},
    "cluster": {"type": "str", "default": ""},
    "region": {"type": "str", "default": ""},
    "ttl": {"type": "str", "default": "24h"},
    "jmespath": {"type": "str", "default": ""},
    **access_options(),
}


def read_overview(args: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the module's result, and the lines to show. Raise PlanRefusedError, CloudError, QueryError."""
    display = Display()
    cloud_type = find_cloud(args["provider"])
    ttl = limit_seconds(normalize_limit("ttl", args["ttl"]))
    client = cloud_type.connect(args, display.display, display.warning)
    cloud = cloud_type(args["cluster"], client, new_journal(args["cluster"], cloud_type.name), "", display.display)
    cloud.check_access(creates=False)
    account = cloud.read_account()
    prices = cloud.prices(None, disks=bool(account.resources["networks"]))
    clusters, other_machines = summarize_clusters(account.resources, time.time(), prices)
    if args["cluster"]:
        clusters = [cluster for cluster in clusters if cluster["cluster"] == args["cluster"]]
    for cluster in clusters:
        disks = cloud.unattached_disks(account, cluster["cluster"])
        cluster["other_costs"] += [f"unattached volume {disk}" for disk in disks]
    result = {"clusters": clusters, "other_machines": len(other_machines)}
    if args["jmespath"]:
        return result, [format_result(run_query(args["jmespath"], result))]
    return result, format_overview(clusters, [] if args["cluster"] else other_machines, prices, ttl)


class ActionModule(ActionBase):
    """Runs on the controller only; read-only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the clusters and return them."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            result, lines = read_overview(args)
        except (PlanRefusedError, CloudError, QueryError) as error:
            raise UserError(str(error)) from None
        for line in lines:
            Display().display(line)
        return {"changed": False, **result}
