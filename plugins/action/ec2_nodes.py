# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of the module ec2_nodes: creates, stops and removes the machines of a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.urls import open_url
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.controller_networks import local_networks
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cluster_snapshot
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    Machine,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import (
    AwsClient,
    BotoMissingError,
    Ec2Error,
    new_session,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    Ec2ClusterError,
    Ec2Context,
    to_ec2_terms,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import MARKETS, Ec2Request
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import choose_region
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.provision import provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import (
    build_first_boot,
    parse_ssh_sources,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.teardown import Confirm, stop, teardown
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
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import parse_public_key
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

#: Name of the image at SSM: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
DEFAULT_IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
ADDRESS_PAGE = "https://checkip.amazonaws.com"

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "stopped", "absent"], "default": "present"},
    "nnodes": {"type": "int", "default": 0},
    "machine_types": {"type": "list", "elements": "str", "default": []},
    "region": {"type": "str", "default": ""},
    "zones": {"type": "list", "elements": "str", "default": []},
    "market": {"type": "str", "choices": list(MARKETS), "default": "on-demand"},
    "image": {"type": "str", "default": DEFAULT_IMAGE},
    "disk_gb": {"type": "int", "default": 150},
    "subnet_id": {"type": "str", "default": ""},
    "own_network": {"type": "bool", "default": False},
    "efa": {"type": "str", "choices": ["auto", "required", "none"], "default": "auto"},
    "ssh_public_key": {"type": "str", "default": ""},
    "key_name": {"type": "str", "default": ""},
    "ssh_from": {"type": "list", "elements": "str", "default": []},
    **WATCH_OPTIONS,
    "max_usd_per_hour": {"type": "float"},
    "price_per_hour": {"type": "float"},
    "on_shortage": {"type": "str", "choices": ["rollback", "wait"], "default": "rollback"},
    "wait_minutes": {"type": "float", "default": 20.0},
    "group_id": {"type": "str", "default": ""},
    "force": {"type": "bool", "default": False},
    "directory": {"type": "path", "default": ""},
    "runs_directory": {"type": "path", "default": ""},
}


def build_request(args: dict[str, Any], check: bool) -> Ec2Request:
    """Return the request, without the source address of SSH. Raise PlanRefusedError if it is invalid."""
    if not 1 <= args["nnodes"] <= MAX_NODES:
        raise PlanRefusedError(f"nnodes is {args['nnodes']}. Set the number of machines: -e nnodes=4")
    machine_types = [name.strip() for name in args["machine_types"] if name.strip()]
    if not machine_types:
        raise PlanRefusedError("no machine type is set. List suitable types, best first: -e machine_types=g5.xlarge")
    for name in ("disk_gb", "max_usd_per_hour", "price_per_hour", "wait_minutes"):
        value = args[name]
        if value is not None and (value < 0 or (name == "disk_gb" and value == 0)):
            raise PlanRefusedError(f"{name} cannot be {value}")
    if args["max_usd_per_hour"] is None and not check:
        raise PlanRefusedError(
            "max_usd_per_hour is not set. Set a limit for the hourly cost of the cluster, for example "
            "-e max_usd_per_hour=10; --check shows what it would cost"
        )
    if args["own_network"] and args["subnet_id"]:
        raise PlanRefusedError(
            f"both a new network and the existing subnet {single_line(args['subnet_id'], 60)} are requested. "
            "Remove provision_own_network or provision_subnet_id"
        )
    if not args["ssh_public_key"] and not args["key_name"]:
        raise PlanRefusedError(
            "no SSH key is set, so nobody could log in. Set your public key: -e provision_ssh_public_key="
            "~/.ssh/id_ed25519.pub, or the name of a key pair at EC2: -e provision_key_name=..."
        )
    return Ec2Request(
        nnodes=args["nnodes"],
        machine_types=machine_types,
        market=args["market"],
        zones=[zone.strip() for zone in args["zones"] if zone.strip()],
        image=args["image"] or DEFAULT_IMAGE,
        disk_gb=args["disk_gb"],
        subnet_id=args["subnet_id"],
        own_network=args["own_network"],
        efa=args["efa"],
        local_networks=local_networks() if args["own_network"] else (),
        first_boot=build_first_boot(
            read_public_key(args["ssh_public_key"]) if args["ssh_public_key"] else "",
            read_watch_files(args["idle_after"], args["ttl"]) if args["power_off"] else {},
        ),
        key_name=args["key_name"],
        ssh_from=parse_ssh_sources(args["ssh_from"]),
        max_usd_per_hour=args["max_usd_per_hour"],
        price_per_hour=args["price_per_hour"],
        wait_minutes=args["wait_minutes"] if args["on_shortage"] == "wait" else 0.0,
    )


def read_public_key(value: str) -> str:
    """Return a public key, read from a file if the value is a path. Raise PlanRefusedError if it is unusable."""
    if value.startswith(("ssh-", "ecdsa-", "sk-", "-----")):
        return parse_public_key(value)
    path = Path(value).expanduser()
    try:
        return parse_public_key(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise PlanRefusedError(
            f"cannot read the public key {single_line(path, 200)}: {reason}. Create a key pair with "
            "`ssh-keygen -t ed25519`"
        ) from None


def local_public_address(page: str = ADDRESS_PAGE) -> list[str]:
    """Return this machine's public address, in parse_ssh_sources()'s form. Raise PlanRefusedError if unavailable."""
    try:
        with open_url(page, timeout=10) as response:
            return parse_ssh_sources([response.read(100).decode()])
    except (OSError, ValueError, PlanRefusedError) as error:
        raise PlanRefusedError(
            f"cannot read this machine's public address from {page}: {single_line(error)}. Set the addresses that may "
            "connect by SSH: -e provision_ssh_from=203.0.113.7"
        ) from None


def build_result(
    desired: DesiredCluster, initial: ClusterPlan, current: ClusterPlan, cost: ClusterCost, diff: bool
) -> dict[str, Any]:
    """Return the module's result, without `changed`."""
    names = ("name", "id", "state", "private_ip", "public_ip", "machine_type")
    result: dict[str, Any] = {
        "cluster": desired["cluster"],
        "group": current["network"]["id"] if current["network"] else "",
        "nodes": [{key: machine[key] for key in names} for machine in current["nodes"]],  # type: ignore[literal-required]
        "steps": [to_ec2_terms(f"{step['action']} {step['what']} {step['name']}") for step in initial["steps"]],
        "cost": dict(cost),
        "left": [],
    }
    if diff:
        snapshots = [
            json.dumps(cluster_snapshot(desired, initial, cost, after), indent=1) + "\n" for after in (False, True)
        ]
        result["diff"] = {"before": snapshots[0], "after": snapshots[1]}
    return result


def apply_state(context: Ec2Context, args: dict[str, Any], confirm: Confirm, check: bool, diff: bool) -> dict[str, Any]:
    """Bring the cluster to the requested state. Raises PlanRefusedError, Ec2ClusterError, JournalError, Ec2Error."""
    if args["state"] == "present":
        request = build_request(args, check)
        provisioned = provision(
            context, request if request.ssh_from else request._replace(ssh_from=local_public_address()), check
        )
        return {
            "changed": provisioned.changed,
            **build_result(
                provisioned.offer.desired, provisioned.offer.plan, provisioned.current, provisioned.cost, diff
            ),
        }
    ended = stop(context, check, confirm) if args["state"] == "stopped" else teardown(context, check, confirm)
    result = {
        "changed": ended.changed,
        **build_result(ended.desired, ended.initial, ended.current, ended.cost, diff),
        "left": ended.remaining,
    }
    return {**result, "failed": True, "msg": ended.message} if ended.remaining else {**result, "msg": ended.message}


class ActionModule(ActionBase):
    """Runs on the controller, without a connection to nodes."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the cluster to the requested state; return its machines and cost."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        check = self._task.check_mode
        sources = task_vars.get("ansible_inventory_sources") or []
        directory = resolve_beside_inventory(args["directory"] or ".muster/clusters", sources)
        runs = resolve_beside_inventory(args["runs_directory"] or "runs", sources)

        def confirm(machines: Sequence[Machine]) -> None:
            if not args["force"]:
                refuse_active_runs(args["cluster"], runs, machines)

        try:
            cluster = validate_cluster_name(args["cluster"])
            if args["state"] == "present":
                build_request(args, check)  # reports errors before AWS is queried
            session = new_session()
            aws = AwsClient(session, choose_region(session, args["region"]), show=self.show)
            with open_journal(directory, cluster, "ec2", check) as journal:
                return apply_state(self.create_context(aws, journal, args), args, confirm, check, self._task.diff)
        except (PlanRefusedError, Ec2ClusterError, JournalError, Ec2Error, BotoMissingError) as error:
            raise UserError(adapt_commands(str(error))) from None

    @staticmethod
    def show(line: str) -> None:
        """Show a line on the screen."""
        Display().display(adapt_commands(line))

    def create_context(self, aws: AwsClient, journal: Any, args: dict[str, Any]) -> Ec2Context:
        """Return what every step of the command needs."""
        return Ec2Context(args["cluster"], aws, journal, args["group_id"], self.show)
