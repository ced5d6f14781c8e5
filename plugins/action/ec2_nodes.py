# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module ec2_nodes: makes, stops and removes the machines of a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.urls import open_url
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.action.paperspace_cluster import (
    MOST_NODES,
    WATCH_OPTIONS,
    beside_inventory,
    checked_cluster,
    refuse_runs,
    watch_files,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.controller_networks import own_networks
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import picture
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Machine, Plan, Wanted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import (
    Aws,
    BotoMissing,
    Ec2Error,
    new_session,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import ClusterError, Work, in_words
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import MARKETS, Ask
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import check_region
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.provision import provide
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import first_boot, ssh_sources
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.teardown import Agree, remove, stop
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import RecordError, open_record
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import public_key
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

#: Name of the image at SSM: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
ADDRESS_PAGE = "https://checkip.amazonaws.com"

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "stopped", "absent"], "default": "present"},
    "nnodes": {"type": "int", "default": 0},
    "machine_types": {"type": "list", "elements": "str", "default": []},
    "region": {"type": "str", "default": ""},
    "zones": {"type": "list", "elements": "str", "default": []},
    "market": {"type": "str", "choices": list(MARKETS), "default": "on-demand"},
    "image": {"type": "str", "default": IMAGE},
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


def ask_of(args: dict[str, Any], check: bool) -> Ask:
    """The request, except for the source address of SSH. Raises PlanRefused if it is invalid."""
    if not 1 <= args["nnodes"] <= MOST_NODES:
        raise PlanRefused(f"nnodes is {args['nnodes']}. Needed: how many machines the cluster has: -e nnodes=4")
    types = [one.strip() for one in args["machine_types"] if one.strip()]
    if not types:
        raise PlanRefused("no machine type is given. Say which ones will do, best first: -e machine_types=g5.xlarge")
    for name in ("disk_gb", "max_usd_per_hour", "price_per_hour", "wait_minutes"):
        value = args[name]
        if value is not None and (value < 0 or (name == "disk_gb" and value == 0)):
            raise PlanRefused(f"{name} cannot be {value}")
    if args["max_usd_per_hour"] is None and not check:
        raise PlanRefused(
            "max_usd_per_hour is not given. Say what the cluster may cost an hour, for example -e max_usd_per_hour=10; "
            "--check shows what it would cost"
        )
    if args["own_network"] and args["subnet_id"]:
        raise PlanRefused(
            f"both a network of its own and the subnet {one_line(args['subnet_id'], 60)} of another are requested. "
            "Leave out provision_own_network or provision_subnet_id"
        )
    if not args["ssh_public_key"] and not args["key_name"]:
        raise PlanRefused(
            "no SSH key is given, so nobody could log in. Give yours: -e provision_ssh_public_key="
            "~/.ssh/id_ed25519.pub, or the name of a key pair that EC2 has: -e provision_key_name=..."
        )
    return Ask(
        nnodes=args["nnodes"],
        machine_types=types,
        market=args["market"],
        zones=[one.strip() for one in args["zones"] if one.strip()],
        image=args["image"] or IMAGE,
        disk_gb=args["disk_gb"],
        subnet_id=args["subnet_id"],
        own_network=args["own_network"],
        efa=args["efa"],
        reached=own_networks() if args["own_network"] else (),
        first_boot=first_boot(
            read_key(args["ssh_public_key"]) if args["ssh_public_key"] else "",
            watch_files(args["idle_after"], args["ttl"]) if args["power_off"] else {},
        ),
        key_name=args["key_name"],
        ssh_from=ssh_sources(args["ssh_from"]),
        max_usd_per_hour=args["max_usd_per_hour"],
        price_per_hour=args["price_per_hour"],
        wait_minutes=args["wait_minutes"] if args["on_shortage"] == "wait" else 0.0,
    )


def read_key(given: str) -> str:
    """The public key: as given, or from the file. Raises PlanRefused."""
    if given.startswith(("ssh-", "ecdsa-", "sk-", "-----")):
        return public_key(given)
    path = Path(given).expanduser()
    try:
        return public_key(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise PlanRefused(
            f"the public key {one_line(path, 200)} cannot be read: {why}. Make a pair with `ssh-keygen -t ed25519`"
        ) from None


def own_address(page: str = ADDRESS_PAGE) -> list[str]:
    """This machine's public address, in the form of ssh_sources(). Raises PlanRefused."""
    try:
        with open_url(page, timeout=10) as answer:
            return ssh_sources([answer.read(100).decode()])
    except (OSError, ValueError, PlanRefused) as error:
        raise PlanRefused(
            f"this machine's public address could not be read from {page}: {one_line(error)}. Say "
            "where to allow SSH from: -e provision_ssh_from=203.0.113.7"
        ) from None


def result_of(wanted: Wanted, first: Plan, now: Plan, cost: Cost, diff: bool) -> dict[str, Any]:
    """The module's result, without `changed`."""
    names = ("name", "id", "state", "private_ip", "public_ip", "machine_type")
    result: dict[str, Any] = {
        "cluster": wanted["cluster"],
        "group": now["network"]["id"] if now["network"] else "",
        "nodes": [{key: machine[key] for key in names} for machine in now["nodes"]],  # type: ignore[literal-required]
        "steps": [in_words(f"{step['action']} {step['what']} {step['name']}") for step in first["steps"]],
        "cost": dict(cost),
        "left": [],
    }
    if diff:
        pictures = [json.dumps(picture(wanted, first, cost, after), indent=1) + "\n" for after in (False, True)]
        result["diff"] = {"before": pictures[0], "after": pictures[1]}
    return result


def carry_out(work: Work, args: dict[str, Any], agree: Agree, check: bool, diff: bool) -> dict[str, Any]:
    """Bring the cluster to its state. Raises PlanRefused, ClusterError, RecordError, Ec2Error."""
    if args["state"] == "present":
        ask = ask_of(args, check)
        done = provide(work, ask if ask.ssh_from else ask._replace(ssh_from=own_address()), check)
        return {"changed": done.changed, **result_of(done.first.wanted, done.first.plan, done.now, done.cost, diff)}
    end = stop(work, check, agree) if args["state"] == "stopped" else remove(work, check, agree)
    result = {"changed": end.changed, **result_of(end.wanted, end.first, end.now, end.cost, diff), "left": end.left}
    return {**result, "failed": True, "msg": end.words} if end.left else {**result, "msg": end.words}


class ActionModule(ActionBase):
    """Runs where ansible-playbook runs; no node takes part."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the cluster to its state; return what exists."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        check = self._task.check_mode
        sources = task_vars.get("ansible_inventory_sources") or []
        directory = beside_inventory(args["directory"] or ".muster/clusters", sources)
        runs = beside_inventory(args["runs_directory"] or "runs", sources)

        def agree(machines: Sequence[Machine]) -> None:
            if not args["force"]:
                refuse_runs(args["cluster"], runs, machines)

        try:
            cluster = checked_cluster(args["cluster"])
            if args["state"] == "present":
                ask_of(args, check)  # reports errors before AWS is queried
            session = new_session()
            aws = Aws(session, check_region(session, args["region"]), say=self.say)
            with open_record(directory, cluster, "ec2", check) as record:
                return carry_out(self.work(aws, record, args), args, agree, check, self._task.diff)
        except (PlanRefused, ClusterError, RecordError, Ec2Error, BotoMissing) as error:
            raise Refusal(as_typed(str(error))) from None

    @staticmethod
    def say(line: str) -> None:
        """One line on the screen."""
        Display().display(as_typed(line))

    def work(self, aws: Aws, record: Any, args: dict[str, Any]) -> Work:
        """The command's context."""
        return Work(args["cluster"], aws, record, args["group_id"], self.say)
