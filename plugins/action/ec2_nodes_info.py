# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of the module ec2_nodes_info: an AWS account's clusters in a region, and their cost."""

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
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import (
    AwsClient,
    BotoMissingError,
    Ec2Error,
    new_session,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import choose_region
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.prices import make_prices, read_disk_price
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import read_account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "default": ""},
    "region": {"type": "str", "default": ""},
    "ttl": {"type": "str", "default": "24h"},
}


class ActionModule(ActionBase):
    """Runs on the controller. Only sends read requests."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the clusters and return them."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display = Display()
        try:
            ttl = limit_seconds(normalize_limit("ttl", args["ttl"]))
            session = new_session()
            aws = AwsClient(session, choose_region(session, args["region"]), show=display.display)
            account = read_account(aws)
            prices = make_prices("", None, read_disk_price(aws) if account.resources["networks"] else None)
        except (PlanRefusedError, Ec2Error, BotoMissingError) as error:
            raise UserError(str(error)) from None
        clusters, other_machines = summarize_clusters(account.resources, time.time(), prices)
        if args["cluster"]:
            clusters = [cluster for cluster in clusters if cluster["cluster"] == args["cluster"]]
        for cluster in clusters:
            volumes = account.volumes.get(cluster["cluster"], [])
            cluster["besides"] += [f"unattached volume {volume}" for volume in volumes]
        for line in format_overview(clusters, [] if args["cluster"] else other_machines, prices, ttl):
            display.display(line)
        return {"changed": False, "clusters": clusters, "others": len(other_machines)}
