# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module paperspace_cluster_info, which lists an account's clusters and their cost."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import limit_seconds, normalize_limit
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost_overview import (
    format_overview,
    summarize_clusters,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    DEFAULT_URL,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.operations import get_session
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_account
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, format_result, run_query
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "default": ""},
    "ttl": {"type": "str", "default": "24h"},
    "jmespath": {"type": "str", "default": ""},
    "api_key": {"type": "str", "no_log": True},
    "api_url": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 30.0},
    "retries": {"type": "int", "default": 4},
}


class ActionModule(ActionBase):
    """Runs on the controller only; read-only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the clusters and return them."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        display = Display()
        try:
            ttl = limit_seconds(normalize_limit("ttl", args["ttl"]))
            client = Client(
                find_api_key(args["api_key"], os.environ, os.path.expanduser("~")),
                args["api_url"] or os.environ.get("PAPERSPACE_API_URL") or DEFAULT_URL,
                timeout=args["timeout"],
                retries=args["retries"],
                notify=display.warning,
            )
            get_session(client)
            clusters, other_machines = summarize_clusters(read_account(client), time.time())
            if args["cluster"]:
                clusters = [cluster for cluster in clusters if cluster["cluster"] == args["cluster"]]
            result = {"clusters": clusters, "others": len(other_machines)}
            if args["jmespath"]:
                output = [format_result(run_query(args["jmespath"], result))]
            else:
                output = format_overview(clusters, [] if args["cluster"] else other_machines, ttl=ttl)
        except (PlanRefusedError, PaperspaceError, QueryError) as error:
            raise UserError(str(error)) from None
        for line in output:
            display.display(line)
        return {"changed": False, **result}
