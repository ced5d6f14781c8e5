# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module paperspace_cluster_info: an account's clusters, and their cost."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import limit_seconds, limit_word
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost_overview import lines, overview
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    DEFAULT_URL,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.operations import session
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_account
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, answer_text, ask
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

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
            client = Client(
                find_api_key(args["api_key"], os.environ, os.path.expanduser("~")),
                args["api_url"] or os.environ.get("PAPERSPACE_API_URL") or DEFAULT_URL,
                timeout=args["timeout"],
                retries=args["retries"],
                notify=display.warning,
            )
            session(client)
            clusters, others = overview(read_account(client), time.time())
            if args["cluster"]:
                clusters = [one for one in clusters if one["cluster"] == args["cluster"]]
            result = {"clusters": clusters, "others": len(others)}
            if args["jmespath"]:
                shown = [answer_text(ask(args["jmespath"], result))]
            else:
                shown = lines(clusters, [] if args["cluster"] else others, ttl=ttl)
        except (PlanRefused, PaperspaceError, QueryError) as error:
            raise Refusal(str(error)) from None
        for line in shown:
            display.display(line)
        return {"changed": False, **result}
