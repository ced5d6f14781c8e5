# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_record: manages a run's record, next to the inventory. Connects to no node."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import time
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._files.bounded import replace_non_finite
from ansible_collections.muster.training.plugins.module_utils._run.job_results import add_report
from ansible_collections.muster.training.plugins.module_utils._run.status import UNFINISHED_STATES
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_result
from ansible_collections.muster.training.plugins.plugin_utils._cluster.training_group import group_members
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    collection_playbooks,
    reject_unused_options,
)
from ansible_collections.muster.training.plugins.plugin_utils._inventory_sources import reject_unread_sources
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import format_running_cost
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._record.active_run import (
    choose_run,
    last_launched,
    nodes_to_query,
    open_runs,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import file_of
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import FILE as CODE_FILE
from ansible_collections.muster.training.plugins.plugin_utils._record.final_result import final_result
from ansible_collections.muster.training.plugins.plugin_utils._record.node_replies import validate_run
from ansible_collections.muster.training.plugins.plugin_utils._record.origin import FILE as ORIGIN_FILE
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import (
    LATEST,
    describe_missing_record,
    records_directory,
    resolve_run_id,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import FILE as SNAPSHOT_FILE
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import PATCH_FILE
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

# The functions that evaluate a run import their dependencies themselves: a launch loads this file before it starts the
# job, and those imports take 0.05 s.
ARGUMENT_SPEC = {
    "state": {
        "type": "str",
        "choices": ["opened", "dropped", "listed", "read", "closed", "judged", "succeeded"],
        "required": True,
    },
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "run_id": {"type": "str", "default": ""},
    "plan": {"type": "dict"},
    "code": {"type": "dict", "default": {}},
    "origin": {"type": "dict", "default": {}},
    "result": {"type": "dict"},
    "runs_by_node": {"type": "dict", "default": {}},
    "job_results": {"type": "dict", "default": {}},
    "displayed_rank": {"type": "int"},
    "fail": {"type": "bool", "default": True},
    "verdict": {"type": "dict"},
    "purpose": {"type": "str", "choices": ["last", "show", "stop"], "default": "last"},
    "quiet": {"type": "bool", "default": False},
    "active": {"type": "dict", "default": {}},
}


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, readable only by its owner: it contains the job's arguments and the end of its output.

    NaN and infinity, which a job may report and JSON does not have, become null.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(replace_non_finite(value), stream, indent=1, sort_keys=True, allow_nan=False)
            stream.write("\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # may be incomplete if the disk is full
        raise


def open_record(
    directory: Path, run_id: str, plan: dict[str, Any], code: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Create the record with the plan, the code's fingerprints and a new token, and point `latest` to it."""
    record = directory / run_id
    if run_id == LATEST:
        raise AnsibleActionFail(
            f"run_id {LATEST} is reserved for the link to the newest record; choose another with -e run_id=NAME"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        record.mkdir(mode=0o700)
    except OSError as error:
        if record.is_dir():
            raise AnsibleActionFail(
                f"run_id {run_id} is taken: its record is in {record}; "
                "choose another with -e run_id=NAME, or omit it to get a new one"
            ) from None
        raise AnsibleActionFail(
            f"cannot create the run's record {record}: {error.strerror}; set launch_runs_directory to a directory "
            "that you can write to"
        ) from error
    descriptor = os.open(record / "token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(32))
    write_json(record / "plan.json", plan)
    if code:
        write_json(record / CODE_FILE, code)
    link_latest(directory, run_id)
    return {"changed": True, "run_id": run_id, "record": str(record), "run_commands": run_commands(run_id)}


def run_commands(run_id: str) -> str:
    """Return the commands for a detached run, as this user must type them."""
    lines = (("status:", "status"), ("output:", "logs"), ("stop:", "stop"))
    return adapt_commands(
        "\n".join(f"  {label:<9}ansible-playbook {playbook}.yml -e run_id={run_id}" for label, playbook in lines)
    )


def link_latest(directory: Path, run_id: str) -> None:
    """Point `latest` to a run."""
    link = directory / f".latest.{os.getpid()}"
    link.symlink_to(run_id)
    link.replace(directory / LATEST)


def drop_record(directory: Path, run_id: str) -> dict[str, Any]:
    """Remove the record of a run that was not started, and point `latest` to the previous run."""
    record, link = directory / run_id, directory / LATEST
    exists = record.is_dir()
    # everything written before the start
    for name in ("token", "plan.json", CODE_FILE, ORIGIN_FILE, SNAPSHOT_FILE, PATCH_FILE):
        (record / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # missing, or no longer empty
        record.rmdir()
    if link.is_symlink() and not link.exists():
        plans = sorted(directory.glob("*/plan.json"), key=lambda plan: plan.stat().st_mtime)
        if plans:
            link_latest(directory, plans[-1].parent.name)
        else:
            link.unlink()
    return {"changed": exists, "run_id": run_id, "record": str(record)}


def read_document(path: Path) -> dict[str, Any]:
    """Return a JSON object of a record. Raise FileNotFoundError if it does not exist."""
    try:
        document = dict(json.loads(path.read_text(encoding="utf-8")))
        if path.name == "plan.json" and not isinstance(document.get("nodes"), list):
            raise ValueError("not a plan")
        return document
    except (ValueError, TypeError):  # for example, because the disk was full
        damaged = path if path.name == "result.json" else path.parent.resolve()  # the former is written again
        raise UserError(f"{path} is damaged; remove it: rm -r {shlex.quote(str(damaged))}") from None


def read_record(directory: Path, run_id: str, members: list[str]) -> dict[str, Any]:
    """Return the plan of a run, by default the latest, and those nodes of the plan that are in the inventory.

    Without a record here, plan is None, and every node of the group may belong to the run.
    """
    run_id = resolve_run_id(directory, run_id)
    record = directory / (run_id or LATEST)
    try:
        plan = read_document(record / "plan.json")
    except FileNotFoundError:
        result = {"changed": False, "run_id": run_id, "record": str(record), "plan": None, "names": members}
        return {**result, "missing": describe_missing_record(directory, run_id, current_playbook())}
    nodes = [node["name"] for node in plan["nodes"]]
    names = [name for name in nodes if name in members]
    if not names:
        raise AnsibleActionFail(
            f"none of the nodes of run {plan['run_id']} is in this inventory: {', '.join(nodes)}; use the inventory "
            "it was launched with"
        )
    return {"changed": False, "run_id": plan["run_id"], "record": str(record.resolve()), "plan": plan, "names": names}


def current_playbook() -> str:
    """Return the name of the playbook of this collection that the user runs, directly or from their own."""
    playbooks = collection_playbooks(context.CLIARGS.get("args") or ()) or []
    return playbooks[0].stem if len(playbooks) == 1 else ""


def find_record(directory: Path, args: dict[str, Any], members: list[str]) -> dict[str, Any]:
    """Return the record that a command refers to, as read_record() does, and whether it may be active.

    Display why it was chosen.
    """
    if args["run_id"] or args["purpose"] == "last":
        return {**read_record(directory, args["run_id"], members), "is_active": True}
    chosen = choose_run(directory, members, args["active"], args["purpose"] == "stop")
    result = {**read_record(directory, chosen.run_id, members), "is_active": chosen.is_active or not chosen.run_id}
    if chosen.note and not args["quiet"]:
        Display().display(chosen.note)
    return result


def close_record(directory: Path, args: dict[str, Any]) -> dict[str, Any]:
    """Write the verdict, show it, and fail if the run did not succeed, unless another task is responsible for
    failing.
    """
    record = directory / args["run_id"]
    plan, runs_by_node = current_plan(record, args["plan"]), args["runs_by_node"]
    master = plan["nodes"][0]["name"]
    # even if the result arrived only after the watcher had lost contact with the node
    result = final_result(plan, args["result"], runs_by_node)
    active_runs = [run for run in runs_by_node.values() if run is not None and run["state"] in UNFINISHED_STATES]
    if result is None and (active_runs or not any(runs_by_node.values())):
        active_nodes = "1 other node says" if len(active_runs) == 1 else f"{len(active_runs)} other nodes say"
        situation = f"{active_nodes} the run is still active" if active_runs else "no node is reachable from here"
        message = (
            f"lost contact with run {args['run_id']}: {master} is not responding and {situation}. The run may "
            f"still be active: check with ansible-playbook status.yml -e run_id={args['run_id']}"
        )
        raise UserError(adapt_commands(message), result={"changed": False})
    verdict = verdict_on(plan, result, runs_by_node)
    reported = dict(job_report(runs_by_node.get(hub_name(plan, result))))
    add_report(reported, args["job_results"])
    watched = (0, 0) if args["result"] is not None else None
    outcome = write_verdict(record, plan, verdict, reported, watched)
    show_bad_nodes(args.get("bad_nodes"), plan, verdict)
    if args["fail"] and verdict["state"] != "succeeded":
        # omit the verdict, which was already shown: Ansible prints the result of a failed task
        raise UserError(
            f"run {verdict['run_id']} {verdict['state']}", result={"changed": True, "record": outcome["record"]}
        )
    return outcome


def current_plan(record: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan in a record, which includes nodes that joined the run after launch, or else `plan`."""
    try:
        recorded = json.loads((record / "plan.json").read_text(encoding="utf-8"))
        is_same = recorded["run_id"] == plan["run_id"] and len(recorded["nodes"]) == len(plan["nodes"])
    except (OSError, ValueError, TypeError, KeyError):
        return plan
    return dict(recorded) if is_same else plan


def require_success(verdict: dict[str, Any]) -> dict[str, Any]:
    """Fail if a run did not succeed, after its verdict was shown."""
    if verdict["state"] != "succeeded":
        raise UserError(f"run {verdict['run_id']} {verdict['state']}", result={"changed": False})
    return {"changed": False}


def hub_name(plan: dict[str, Any], result: dict[str, Any] | None) -> str:
    """Return the name of the node that was leading the run when it ended."""
    name: str = plan["nodes"][(result or {}).get("hub") or 0]["name"]
    return name


def job_report(run: dict[str, Any] | None) -> dict[str, Any]:
    """Return the job's own reports, read from the node that led the run."""
    return (run or {}).get("job_results") or {}


def verdict_on(plan: dict[str, Any], result: dict[str, Any] | None, runs_by_node: dict[str, Any]) -> dict[str, Any]:
    """Return how a run ended: from rank 0's result if available, otherwise from the nodes' statuses."""
    from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
        add_replies,
        verdict_from_hub,
        verdict_without_hub,
    )

    runs_by_node = {name: validate_run(run) for name, run in runs_by_node.items()}
    result = trusted_result(plan, result)
    if result is None:
        return verdict_without_hub(plan, runs_by_node, time.time())
    return verdict_from_hub(plan, add_replies(result, runs_by_node))


def trusted_result(plan: dict[str, Any], result: Any) -> dict[str, Any] | None:
    """Return rank 0's result, which the job may have written, if it is valid and belongs to this plan's run and
    nodes.
    """
    checked = validate_result(result)
    names = [node["name"] for node in plan["nodes"]]
    if checked is None or checked["run_id"] != plan["run_id"] or [node["name"] for node in checked["nodes"]] != names:
        return None
    return checked


def find_rank(plan: dict[str, Any], rank: int | None) -> tuple[int, int] | None:
    """Return a rank's node_rank and local rank in a plan."""
    if rank is None:
        return None
    for node_rank, node in enumerate(plan["nodes"]):
        if node["first_rank"] <= rank < node["first_rank"] + node["slots"]:
            return node_rank, rank - node["first_rank"]
    return None


def show_verdict(
    plan: dict[str, Any],
    verdict: dict[str, Any],
    written_path: str,
    reported: dict[str, Any],
    watched: tuple[int, int] | None,
) -> None:
    """Show the failed rank's last output and the verdict, with cause and remedy if they are in the catalogue."""
    from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
    from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import read_facts
    from ansible_collections.muster.training.plugins.plugin_utils._failures.run_advice import for_run
    from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import (
        render_last_lines,
        render_verdict,
    )

    failure = verdict["first_failure"]
    explanation = None
    if failure:
        facts = read_facts(plan, failure.get("rank"))
        error = failure["error"]
        explanation = for_run(explain_failure(error, failure.get("last_lines", []), facts), plan, error)
    last_lines = render_last_lines(verdict, watched)
    if last_lines:
        Display().display(last_lines)
    Display().display(adapt_commands(render_verdict(verdict, written_path, reported, explanation)))


def write_verdict(
    record: Path,
    plan: dict[str, Any],
    verdict: dict[str, Any],
    reported: dict[str, Any],
    watched: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Write the verdict to the record, and show it even if it cannot be written.

    watched: node_rank and local rank of the rank whose output was shown until its end.
    """
    path = record / "result.json"
    written_path = str(path)
    try:
        write_json(path, verdict | {"job_results": reported})
        (record / "token").unlink(missing_ok=True)
    except OSError as error:  # another user's record, one that was removed, or a full disk
        written_path = ""
        Display().warning(
            f"cannot write the verdict to {path}: {error.strerror}; free up space there or take ownership of the "
            + adapt_commands(f"directory, then run ansible-playbook status.yml -e run_id={verdict['run_id']}")
        )
    show_verdict(plan, verdict, written_path, reported, watched)
    return {"changed": bool(written_path), "record": written_path, "verdict": verdict}


def judge_record(directory: Path, args: dict[str, Any]) -> dict[str, Any]:
    """Show the verdict of a run that was not watched to its end, and write it if it is missing.

    Do nothing if the run is or may be active. If rank 0's node does not reply, the other nodes' statuses count, if all
    can be read; the verdict is corrected once rank 0's result is available.
    """
    record = directory / (args["run_id"] or LATEST)
    unchanged = {"changed": False, "record": "", "verdict": None}
    try:
        plan = read_document(record / "plan.json")
    except FileNotFoundError:
        return unchanged  # launched from another machine
    path = record / "result.json"
    runs_by_node, watched = args["runs_by_node"], find_rank(plan, args.get("displayed_rank"))
    master = runs_by_node.get(plan["nodes"][0]["name"])
    reported: dict[str, Any] = {}
    if path.exists():
        verdict = read_document(path)
        reported = verdict.pop("job_results")
        # a verdict reached without rank 0's result is corrected once that result is available
        if verdict["started"] is not None or final_result(plan, None, runs_by_node) is None:
            show_verdict(plan, verdict, str(path), reported, watched)
            return {"changed": False, "record": str(path), "verdict": verdict}
    runs = [run for run in runs_by_node.values() if run is not None]
    if any(run["run_id"] != plan["run_id"] for run in runs):
        return unchanged
    other_runs = [runs_by_node.get(node["name"]) for node in plan["nodes"][1:]]
    result = final_result(plan, None, runs_by_node)
    # a node that is not responding may know more
    if result is None and master is None and (not other_runs or None in other_runs):
        return unchanged
    if result is None and any(run["state"] in UNFINISHED_STATES for run in runs):
        cost = format_running_cost(plan, master.get("started") if master else None, time.time())
        if cost:
            Display().display(f"run {plan['run_id']} {cost}")
        return unchanged
    verdict = verdict_on(plan, result, runs_by_node)
    outcome = write_verdict(
        record, plan, verdict, reported | job_report(runs_by_node.get(hub_name(plan, result))), watched
    )
    show_bad_nodes(args.get("bad_nodes"), plan, verdict)
    return outcome


def show_bad_nodes(path: Path | None, plan: dict[str, Any], verdict: dict[str, Any]) -> None:
    """Record the nodes whose hardware a new verdict blames, and show their names."""
    from ansible_collections.muster.training.plugins.plugin_utils._record.remember import record_bad_nodes

    for line in record_bad_nodes(path, plan, verdict) if path is not None else []:
        Display().display(adapt_commands(line))


class ActionModule(ActionBase):
    """Action plugin that reads and writes below one directory on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Open, read or close a record."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC,
            required_if=[
                ("state", "opened", ("plan",)),
                ("state", "closed", ("plan",)),
                ("state", "succeeded", ("verdict",)),
            ],
        )
        if not args["run_id"] and args["state"] in ("opened", "dropped", "closed"):
            raise AnsibleActionFail(f"state is {args['state']}, which requires a run: set run_id")
        if args["run_id"] and not SAFE_RUN_ID.match(args["run_id"]):
            raise AnsibleActionFail(
                f"run_id {ascii(args['run_id'])[:80]} is not a safe name: use letters, digits, '.', '_' and '-'"
            )
        if args["state"] == "succeeded":
            return require_success(args["verdict"])
        directory = records_directory(args["directory"], args["group"], task_vars)
        if args["state"] == "listed":
            reject_unused_options(task_vars)
            runs = [] if args["run_id"] else open_runs(directory, group_members(args["group"], task_vars["groups"]))
            return {"changed": False, "nodes_to_query": nodes_to_query(runs, last_launched(directory))}
        if args["state"] == "read":
            reject_unused_options(task_vars)
            result = find_record(directory, args, group_members(args["group"], task_vars["groups"]))
            if result["plan"] is None or len(result["names"]) < len(result["plan"]["nodes"]):
                reject_unread_sources(task_vars["hostvars"])  # an unread source may list the missing nodes
            return result
        if self._task.check_mode:
            record = str(directory / args["run_id"])
            return {"changed": args["state"] != "judged", "run_id": args["run_id"], "record": record}
        args["bad_nodes"] = file_of(task_vars, args["group"])
        if args["state"] == "judged":
            return judge_record(directory, args)
        if args["state"] == "opened":
            opened = open_record(directory, args["run_id"], args["plan"], args["code"])
            if args["origin"]:
                write_json(directory / args["run_id"] / ORIGIN_FILE, args["origin"])
            return opened
        if args["state"] == "dropped":
            return drop_record(directory, args["run_id"])
        return close_record(directory, args)
