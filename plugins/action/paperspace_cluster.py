# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module paperspace_cluster: makes, stops and removes the machines of a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.active_runs import runs_on
from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import limit_word
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import picture
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Machine, Plan, Wanted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import RecordError, open_record
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import CLUSTER_NAME, PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import ClusterError, Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    DEFAULT_URL,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    WATCH_FILES,
    WATCH_SETTINGS,
    first_boot,
    watch_settings,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import Ask
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.provision import provide
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.teardown import Agree, remove, stop
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import (
    known_region,
    public_key,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

#: Options of modules whose machines power themselves off
WATCH_OPTIONS: dict[str, dict[str, Any]] = {
    "power_off": {"type": "bool", "default": False},
    "idle_after": {"type": "str", "default": "30m"},
    "ttl": {"type": "str", "default": "24h"},
}
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
WATCH = Path(__file__).resolve().parents[2] / "roles" / "idle_watch" / "files"
MOST_NODES = 512  # more than any account allows; limits the cost of a typo


def beside_inventory(given: str, sources: list[str]) -> Path:
    """Resolve a path: a relative one starts beside the first inventory source that is a file."""
    beside = next((Path(one) for one in sources if "," not in one and Path(one).exists()), Path.cwd())
    base = beside if beside.is_dir() else beside.parent
    return base / given


def checked_cluster(name: str) -> str:
    """The name of a cluster. Raises PlanRefused if it is invalid."""
    if not name:
        raise PlanRefused("no cluster is named. Say which one: -e cluster=bert")
    if not CLUSTER_NAME.fullmatch(name):
        raise PlanRefused(
            f"cluster is {one_line(name, 60)!r}. Needed: a lower-case letter, then up to 30 lower-case letters, digits "
            "and hyphens, with no hyphen at the end"
        )
    return name


def ask_of(args: dict[str, Any], check: bool) -> Ask:
    """The request. Raises PlanRefused if it is invalid."""
    if not 1 <= args["nnodes"] <= MOST_NODES:
        raise PlanRefused(f"nnodes is {args['nnodes']}. Needed: how many machines the cluster has: -e nnodes=4")
    types = [one.strip() for one in args["machine_types"] if one.strip()]
    if not types:
        raise PlanRefused("no machine type is given. Say which ones will do, best first: -e machine_types=A6000x2")
    if not args["region"]:
        raise PlanRefused("no region is given. Say where: -e region=ny2, ca1 or ams1")
    for name in ("disk_gb", "drive_gb", "max_usd_per_hour", "price_per_hour", "wait_minutes"):
        value = args[name]
        if value is not None and (value < 0 or (name == "disk_gb" and value == 0)):
            raise PlanRefused(f"{name} cannot be {value}")
    if args["max_usd_per_hour"] is None and not check:
        raise PlanRefused(
            "max_usd_per_hour is not given. Say what the cluster may cost an hour, for example -e max_usd_per_hour=10; "
            "--check shows what it would cost"
        )
    return Ask(
        nnodes=args["nnodes"],
        machine_types=types,
        region=known_region(args["region"]),
        template=args["template"],
        disk_gb=args["disk_gb"],
        drive_gb=args["drive_gb"],
        public_ip=args["public_ip"],
        max_usd_per_hour=args["max_usd_per_hour"],
        price_per_hour=args["price_per_hour"],
        on_shortage=args["on_shortage"],
        wait_minutes=args["wait_minutes"],
        first_boot=first_boot(
            read_key(args["ssh_public_key"]) if args["ssh_public_key"] else "",
            watch_files(args["idle_after"], args["ttl"]) if args["power_off"] else {},
        ),
    )


def watch_files(after: str, ttl: str) -> dict[str, str]:
    """The role idle_watch's files, by path on the node, so that the watch works before the role runs."""
    files = {path: (WATCH / name).read_text(encoding="utf-8") for name, path in WATCH_FILES.items()}
    return {**files, WATCH_SETTINGS: watch_settings(limit_word("idle_after", after), limit_word("ttl", ttl))}


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
            f"the public key {one_line(path, 200)} cannot be read: {why}. Make a pair with `ssh-keygen -t ed25519`, or "
            "leave ssh_public_key out where the Paperspace account has your key"
        ) from None


def result_of(wanted: Wanted, first: Plan, now: Plan, cost: Cost, diff: bool) -> dict[str, Any]:
    """The module's result, without `changed`."""
    names = ("name", "id", "state", "private_ip", "public_ip", "machine_type")
    drives = [{key: drive[key] for key in ("name", "id", "size_gb", "share", "username")} for drive in now["drives"]]
    result: dict[str, Any] = {
        "cluster": wanted["cluster"],
        "network": now["network"]["id"] if now["network"] else "",
        "nodes": [{key: machine[key] for key in names} for machine in now["nodes"]],  # type: ignore[literal-required]
        "drive": drives[0] if drives else None,
        "steps": [f"{step['action']} {step['what']} {step['name']}" for step in first["steps"]],
        "cost": dict(cost),
        "left": [],
    }
    if diff:
        pictures = [json.dumps(picture(wanted, first, cost, after), indent=1) + "\n" for after in (False, True)]
        result["diff"] = {"before": pictures[0], "after": pictures[1]}
    return result


def refuse_runs(cluster: str, directory: Path, machines: Sequence[Machine]) -> None:
    """Raise PlanRefused if a run may be alive on machines about to be stopped or removed."""
    runs = runs_on(directory, [machine["private_ip"] for machine in machines if machine["private_ip"]])
    if runs:
        raise PlanRefused(
            f"{cluster} may still be running {', '.join(runs[:4])}: no result in {directory}. Check with "
            f"`ansible-playbook status.yml -e run_id={runs[0]}`, stop it, or override with -e force=true"
        )


def carry_out(work: Work, args: dict[str, Any], agree: Agree, check: bool, diff: bool) -> dict[str, Any]:
    """Bring the cluster to its state. Raises PlanRefused, ClusterError, RecordError, PaperspaceError."""
    if args["state"] == "present":
        done = provide(work, ask_of(args, check), check)
        return {"changed": done.changed, **result_of(done.way.wanted, done.way.plan, done.now, done.cost, diff)}
    stopped = args["state"] == "stopped"
    end = (
        stop(work, check, agree)
        if stopped
        else remove(work, args["remove_drive"], check, agree, args["remove_templates"])
    )
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
        display, check = Display(), self._task.check_mode
        sources = task_vars.get("ansible_inventory_sources") or []
        directory = beside_inventory(args["directory"] or ".muster/clusters", sources)
        runs = beside_inventory(args["runs_directory"] or "runs", sources)

        def agree(machines: Sequence[Machine]) -> None:
            if not args["force"]:
                refuse_runs(args["cluster"], runs, machines)

        try:
            cluster = checked_cluster(args["cluster"])
            if args["state"] == "present":
                ask_of(args, check)  # reports errors before searching for the key
            client = Client(
                find_api_key(args["api_key"], os.environ, os.path.expanduser("~")),
                args["api_url"] or os.environ.get("PAPERSPACE_API_URL") or DEFAULT_URL,
                timeout=args["timeout"],
                retries=args["retries"],
                notify=display.warning,
            )
            with open_record(directory, cluster, "paperspace", check) as record:
                return carry_out(self.work(client, record, args), args, agree, check, self._task.diff)
        except (PlanRefused, ClusterError, RecordError, PaperspaceError) as error:
            raise Refusal(as_typed(str(error))) from None

    @staticmethod
    def work(client: Client, record: Any, args: dict[str, Any]) -> Work:
        """The command's context."""
        return Work(args["cluster"], client, record, args["network_id"], lambda line: Display().display(as_typed(line)))
