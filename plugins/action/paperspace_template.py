# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module paperspace_template: makes and removes templates of a cluster's machines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.action.paperspace_cluster import (
    beside_inventory,
    checked_cluster,
    refuse_runs,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import (
    ClusterRecord,
    RecordError,
    open_record,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import ClusterError, Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    DEFAULT_URL,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.image import (
    Imaged,
    make_image,
    remove_image,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.teardown import Agree
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "node": {"type": "str", "default": ""},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "start": {"type": "bool", "default": True},
    "force": {"type": "bool", "default": False},
    "network_id": {"type": "str", "default": ""},
    "runs_directory": {"type": "path", "default": ""},
    "directory": {"type": "path", "default": ""},
    "api_key": {"type": "str", "no_log": True},
    "api_url": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 30.0},
    "retries": {"type": "int", "default": 4},
}


def checked_name(name: str) -> str:
    """The name of a template. Raises PlanRefused if it is invalid."""
    if not name:
        raise PlanRefused("the template has no name. Choose one: -e template=bert-with-data")
    if name != one_line(name, 80) or not name.isascii():
        raise PlanRefused(f"the template's name is {ascii(name)[:60]}. Needed: up to 80 plain characters")
    return name


def carry_out(work: Work, args: dict[str, Any], agree: Agree, check: bool) -> Imaged:
    """Make or remove the template. Raises PlanRefused, ClusterError, RecordError, PaperspaceError."""
    if args["state"] == "absent":
        return remove_image(work, args["name"], check)
    return make_image(work, args["node"] or f"{args['cluster']}-0", args["name"], args["start"], check, agree)


class ActionModule(ActionBase):
    """Runs where ansible-playbook runs; no node takes part."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the template to its state; return its id."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        check, display = self._task.check_mode, Display()
        sources = task_vars.get("ansible_inventory_sources") or []
        directory = beside_inventory(args["directory"] or ".muster/clusters", sources)
        runs = beside_inventory(args["runs_directory"] or "runs", sources)

        def agree(machines: Sequence[Machine]) -> None:
            if not args["force"]:
                refuse_runs(args["cluster"], runs, machines)

        def work(client: Client, record: ClusterRecord) -> Work:
            return Work(
                args["cluster"], client, record, args["network_id"], lambda line: display.display(as_typed(line))
            )

        try:
            cluster = checked_cluster(args["cluster"])
            checked_name(args["name"])
            client = Client(
                find_api_key(args["api_key"], os.environ, os.path.expanduser("~")),
                args["api_url"] or os.environ.get("PAPERSPACE_API_URL") or DEFAULT_URL,
                timeout=args["timeout"],
                retries=args["retries"],
                notify=display.warning,
            )
            with open_record(directory, cluster, "paperspace", check) as record:
                done = carry_out(work(client, record), args, agree, check)
        except (PlanRefused, ClusterError, RecordError, PaperspaceError) as error:
            raise Refusal(as_typed(str(error))) from None
        return {"changed": done.changed, "template": done.template_id, "msg": done.words}
