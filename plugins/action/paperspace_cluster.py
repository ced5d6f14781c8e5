# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module paperspace_cluster, which creates, stops and removes the machines of a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cluster_snapshot
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    Machine,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import JournalError, open_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.options import (
    MAX_NODES,
    WATCH_OPTIONS,
    read_watch_files,
    refuse_active_runs,
    resolve_beside_inventory,
    validate_cluster_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    PaperspaceClusterError,
    PaperspaceContext,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    DEFAULT_URL,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    build_first_boot_script,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import PaperspaceRequest
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.provision import provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.teardown import Confirm, stop, teardown
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import (
    parse_public_key,
    parse_region,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "stopped", "absent"], "default": "present"},
    "nnodes": {"type": "int", "default": 0},
    "machine_types": {"type": "list", "elements": "str", "default": []},
    "region": {"type": "str", "default": ""},
    "template": {"type": "str", "default": "ML-in-a-Box"},
    "disk_gb": {"type": "int", "default": 250},
    "drive_gb": {"type": "int", "default": 0},
    "public_ip": {"type": "str", "choices": ["dynamic", "static", "none"], "default": "dynamic"},
    "max_usd_per_hour": {"type": "float"},
    "price_per_hour": {"type": "float"},
    "on_shortage": {"type": "str", "choices": ["rollback", "wait"], "default": "rollback"},
    "wait_minutes": {"type": "float", "default": 20.0},
    "ssh_public_key": {"type": "str", "default": ""},
    **WATCH_OPTIONS,
    "network_id": {"type": "str", "default": ""},
    "remove_drive": {"type": "bool", "default": False},
    "remove_templates": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "directory": {"type": "path", "default": ""},
    "runs_directory": {"type": "path", "default": ""},
    "api_key": {"type": "str", "no_log": True},
    "api_url": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 30.0},
    "retries": {"type": "int", "default": 4},
}


def build_request(args: dict[str, Any], check: bool) -> PaperspaceRequest:
    """Return the request. Raise PlanRefusedError if it is invalid."""
    if not 1 <= args["nnodes"] <= MAX_NODES:
        raise PlanRefusedError(f"nnodes cannot be {args['nnodes']}. Set the cluster's number of machines: -e nnodes=4")
    types = [name.strip() for name in args["machine_types"] if name.strip()]
    if not types:
        raise PlanRefusedError("no machine type is set. List acceptable ones, best first: -e machine_types=A6000x2")
    if not args["region"]:
        raise PlanRefusedError("no region is set. Choose one: -e region=ny2, ca1 or ams1")
    for name in ("disk_gb", "drive_gb", "max_usd_per_hour", "price_per_hour", "wait_minutes"):
        value = args[name]
        if value is not None and (value < 0 or (name == "disk_gb" and value == 0)):
            raise PlanRefusedError(f"{name} cannot be {value}")
    if args["max_usd_per_hour"] is None and not check:
        raise PlanRefusedError(
            "max_usd_per_hour is not set. Set a limit for the hourly cost of the cluster, for example "
            "-e max_usd_per_hour=10; --check shows what it would cost"
        )
    return PaperspaceRequest(
        nnodes=args["nnodes"],
        machine_types=types,
        region=parse_region(args["region"]),
        template=args["template"],
        disk_gb=args["disk_gb"],
        drive_gb=args["drive_gb"],
        public_ip=args["public_ip"],
        max_usd_per_hour=args["max_usd_per_hour"],
        price_per_hour=args["price_per_hour"],
        on_shortage=args["on_shortage"],
        wait_minutes=args["wait_minutes"],
        first_boot=build_first_boot_script(
            read_public_key(args["ssh_public_key"]) if args["ssh_public_key"] else "",
            read_watch_files(args["idle_after"], args["ttl"]) if args["power_off"] else {},
        ),
    )


def read_public_key(key_or_path: str) -> str:
    """Return the public key, read from a file if the setting is a path. Raise PlanRefusedError."""
    if key_or_path.startswith(("ssh-", "ecdsa-", "sk-", "-----")):
        return parse_public_key(key_or_path)
    path = Path(key_or_path).expanduser()
    try:
        return parse_public_key(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise PlanRefusedError(
            f"cannot read the public key {single_line(path, 200)}: {reason}. Create a pair with `ssh-keygen -t "
            "ed25519`, or omit ssh_public_key if the Paperspace account has your key"
        ) from None


def build_result(
    desired: DesiredCluster, initial: ClusterPlan, current: ClusterPlan, cost: ClusterCost, diff: bool
) -> dict[str, Any]:
    """Return the module's result, without `changed`."""
    names = ("name", "id", "state", "private_ip", "public_ip", "machine_type")
    drives = [
        {key: drive[key] for key in ("name", "id", "size_gb", "share", "username")} for drive in current["drives"]
    ]
    result: dict[str, Any] = {
        "cluster": desired["cluster"],
        "network": current["network"]["id"] if current["network"] else "",
        "nodes": [{key: machine[key] for key in names} for machine in current["nodes"]],  # type: ignore[literal-required]
        "drive": drives[0] if drives else None,
        "steps": [f"{step['action']} {step['what']} {step['name']}" for step in initial["steps"]],
        "cost": dict(cost),
        "left": [],
    }
    if diff:
        snapshots = [
            json.dumps(cluster_snapshot(desired, initial, cost, after), indent=1) + "\n" for after in (False, True)
        ]
        result["diff"] = {"before": snapshots[0], "after": snapshots[1]}
    return result


def apply_state(
    context: PaperspaceContext, args: dict[str, Any], confirm: Confirm, check: bool, diff: bool
) -> dict[str, Any]:
    """Bring the cluster to the requested state and return the module's result.

    Raises:
        PlanRefusedError, PaperspaceClusterError, JournalError, PaperspaceError
    """
    if args["state"] == "present":
        provisioned = provision(context, build_request(args, check), check)
        return {
            "changed": provisioned.changed,
            **build_result(
                provisioned.offer.desired, provisioned.offer.plan, provisioned.current, provisioned.cost, diff
            ),
        }
    stopped = args["state"] == "stopped"
    ended = (
        stop(context, check, confirm)
        if stopped
        else teardown(context, args["remove_drive"], check, confirm, args["remove_templates"])
    )
    result = {
        "changed": ended.changed,
        **build_result(ended.desired, ended.initial, ended.current, ended.cost, diff),
        "left": ended.remaining,
    }
    return {**result, "failed": True, "msg": ended.message} if ended.remaining else {**result, "msg": ended.message}


class ActionModule(ActionBase):
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the cluster to the requested state; return what exists."""
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

        try:
            cluster = validate_cluster_name(args["cluster"])
            if args["state"] == "present":
                build_request(args, check)  # reports errors before searching for the key
            client = Client(
                find_api_key(args["api_key"], os.environ, os.path.expanduser("~")),
                args["api_url"] or os.environ.get("PAPERSPACE_API_URL") or DEFAULT_URL,
                timeout=args["timeout"],
                retries=args["retries"],
                notify=display.warning,
            )
            with open_journal(directory, cluster, "paperspace", check) as journal:
                return apply_state(self.create_context(client, journal, args), args, confirm, check, self._task.diff)
        except (PlanRefusedError, PaperspaceClusterError, JournalError, PaperspaceError) as error:
            raise UserError(adapt_commands(str(error))) from None

    @staticmethod
    def create_context(client: Client, journal: Any, args: dict[str, Any]) -> PaperspaceContext:
        """Return the command's context."""
        return PaperspaceContext(
            args["cluster"], client, journal, args["network_id"], lambda line: Display().display(adapt_commands(line))
        )
