# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module paperspace_template, which creates and removes templates for a cluster's machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import Confirm
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import (
    ClusterJournal,
    JournalError,
    open_journal,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.options import (
    refuse_active_runs,
    resolve_beside_inventory,
    validate_cluster_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.context import PaperspaceContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import PaperspaceError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.image import (
    TemplateResult,
    ensure_template,
    remove_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.settings import ACCESS_OPTIONS, connect
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

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
    **ACCESS_OPTIONS,
}


def validate_template_name(name: str) -> str:
    """Return the template name. Raise PlanRefusedError if it is invalid."""
    if not name:
        raise PlanRefusedError("no template name is set. Set one: -e template=bert-with-data")
    if name != single_line(name, 80) or not name.isascii():
        raise PlanRefusedError(f"invalid template name {ascii(name)[:60]}. Use up to 80 printable ASCII characters")
    return name


def apply_state(context: PaperspaceContext, args: dict[str, Any], confirm: Confirm, check: bool) -> TemplateResult:
    """Create or remove the template.

    Raises:
        PlanRefusedError, ClusterError, JournalError, PaperspaceError
    """
    if args["state"] == "absent":
        return remove_template(context, args["name"], check)
    return ensure_template(context, args["node"] or f"{args['cluster']}-0", args["name"], args["start"], check, confirm)


class ActionModule(ActionBase):
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the template to the requested state; return its id."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        check, display = self._task.check_mode, Display()
        sources = task_vars.get("ansible_inventory_sources") or []
        directory = resolve_beside_inventory(args["directory"] or ".muster/clusters", sources)
        runs = resolve_beside_inventory(args["runs_directory"] or "runs", sources)

        def confirm(machines: Sequence[Machine]) -> None:
            if not args["force"]:
                refuse_active_runs(args["cluster"], runs, machines)

        def create_context(client: Client, journal: ClusterJournal) -> PaperspaceContext:
            return PaperspaceContext(
                args["cluster"], client, journal, args["network_id"], lambda line: display.display(adapt_commands(line))
            )

        try:
            cluster = validate_cluster_name(args["cluster"])
            validate_template_name(args["name"])
            client = connect(args, display.warning)
            with open_journal(directory, cluster, "paperspace", check) as journal:
                template = apply_state(create_context(client, journal), args, confirm, check)
        except (PlanRefusedError, ClusterError, JournalError, PaperspaceError) as error:
            raise UserError(adapt_commands(str(error))) from None
        return {"changed": template.changed, "template": template.template_id, "msg": template.message}
