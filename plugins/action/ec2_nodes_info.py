# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module ec2_nodes_info: an AWS account's clusters in a region, and their cost."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import limit_seconds, limit_word
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost_overview import lines, overview
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import (
    Aws,
    BotoMissing,
    Ec2Error,
    new_session,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import check_region
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.prices import disk, prices_with
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import read_account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "default": ""},
    "region": {"type": "str", "default": ""},
    "ttl": {"type": "str", "default": "24h"},
}


class ActionModule(ActionBase):
    """Runs where ansible-playbook runs; only reads."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the clusters and return them."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display = Display()
        try:
            ttl = limit_seconds(limit_word("ttl", args["ttl"]))
            session = new_session()
            aws = Aws(session, check_region(session, args["region"]), say=display.display)
            account = read_account(aws)
            prices = prices_with("", None, disk(aws) if account.there["networks"] else None)
        except (PlanRefused, Ec2Error, BotoMissing) as error:
            raise Refusal(str(error)) from None
        clusters, others = overview(account.there, time.time(), prices)
        if args["cluster"]:
            clusters = [one for one in clusters if one["cluster"] == args["cluster"]]
        for one in clusters:
            volumes = account.volumes.get(one["cluster"], [])
            one["besides"] += [f"unattached volume {volume}" for volume in volumes]
        for line in lines(clusters, [] if args["cluster"] else others, prices, ttl):
            display.display(line)
        return {"changed": False, "clusters": clusters, "others": len(others)}
