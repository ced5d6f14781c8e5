# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_record: the record of a run beside the inventory. Connects to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._cluster.training_group import members_of
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    refuse_what_has_no_effect,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
    from_hub,
    render_last_lines,
    render_verdict,
    without_hub,
)
from ansible_collections.muster.training.plugins.plugin_utils._inventory_sources import refuse_unread_sources
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import so_far
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

ARGUMENT_SPEC = {
    "state": {
        "type": "str",
        "choices": ["opened", "dropped", "read", "closed", "judged", "succeeded"],
        "required": True,
    },
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "run_id": {"type": "str", "default": ""},
    "plan": {"type": "dict"},
    "result": {"type": "dict"},
    "reads": {"type": "dict", "default": {}},
    "said": {"type": "dict", "default": {}},
    "fail": {"type": "bool", "default": True},
    "verdict": {"type": "dict"},
}
LATEST = "latest"  # the link to the newest record
ACTIVE_STATES = ("starting", "running", "stopping", "ended")


def write(path: Path, value: Any, mode: int = 0o644) -> None:
    """Write JSON atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=1, sort_keys=True)
            stream.write("\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # may be incomplete, on a full disk
        raise


def open_record(directory: Path, run_id: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Make the record with the plan and a new token, and point `latest` to it."""
    record = directory / run_id
    if run_id == LATEST:
        raise AnsibleActionFail(
            f"run_id {LATEST} is reserved for the link to the newest record; choose another with -e run_id=NAME"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        record.mkdir()
    except OSError as problem:
        if record.is_dir():
            raise AnsibleActionFail(
                f"run_id {run_id} is taken: its record is in {record}; "
                "choose another with -e run_id=NAME, or leave it out to get a new one"
            ) from None
        raise AnsibleActionFail(
            f"cannot make the run's record {record}: {problem.strerror}; "
            "set launch_runs_directory to a directory that you can write"
        ) from problem
    descriptor = os.open(record / "token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(32))
    write(record / "plan.json", plan)
    name_latest(directory, run_id)
    return {"changed": True, "run_id": run_id, "record": str(record), "goes_on": commands_of(run_id)}


def commands_of(run_id: str) -> str:
    """The commands for a detached run, as this user must type them."""
    lines = (("status:", "status"), ("output:", "logs"), ("stop:", "stop"))
    return as_typed(
        "\n".join(f"  {what:<9}ansible-playbook {playbook}.yml -e run_id={run_id}" for what, playbook in lines)
    )


def name_latest(directory: Path, run_id: str) -> None:
    """Point `latest` to a run."""
    link = directory / f".latest.{os.getpid()}"
    link.symlink_to(run_id)
    link.replace(directory / LATEST)


def drop_record(directory: Path, run_id: str) -> dict[str, Any]:
    """Remove the record of a run that was not started, and point `latest` to the previous one."""
    record, link = directory / run_id, directory / LATEST
    there = record.is_dir()
    for name in ("token", "plan.json"):  # everything written by open_record()
        (record / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # missing, or not empty by now
        record.rmdir()
    if link.is_symlink() and not link.exists():
        others = sorted(directory.glob("*/plan.json"), key=lambda plan: plan.stat().st_mtime)
        if others:
            name_latest(directory, others[-1].parent.name)
        else:
            link.unlink()
    return {"changed": there, "run_id": run_id, "record": str(record)}


def whole_id(directory: Path, given: str) -> str:
    """The full id of a run: as given, or the only one that starts with it."""
    if not given or not directory.is_dir() or (directory / given).exists():
        return given
    found = sorted(path.name for path in directory.iterdir() if path.name != LATEST and path.name.startswith(given))
    if len(found) > 1:
        raise AnsibleActionFail(
            f"{len(found)} runs start with {given}: {', '.join(found[-8:])}"
            f"{' and older ones' if len(found) > 8 else ''}; type more of the name"
        )
    return found[0] if found else given


def read_record(directory: Path, run_id: str, members: list[str]) -> dict[str, Any]:
    """The plan of a run, by default the latest, and those of its nodes that are in the inventory.

    Without a record here, plan is None, and every node of the group may belong to the run.
    """
    run_id = whole_id(directory, run_id)
    record = directory / (run_id or LATEST)
    try:
        plan = json.loads((record / "plan.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"changed": False, "run_id": run_id, "record": str(record), "plan": None, "names": members}
    nodes = [node["name"] for node in plan["nodes"]]
    names = [name for name in nodes if name in members]
    if not names:
        raise AnsibleActionFail(
            f"none of the nodes of run {plan['run_id']} is in this inventory: {', '.join(nodes)}; use the inventory "
            "it was launched with"
        )
    return {"changed": False, "run_id": plan["run_id"], "record": str(record.resolve()), "plan": plan, "names": names}


def records_directory(given: str, group: str, task_vars: Mapping[str, Any]) -> Path:
    """The records' directory: as given, else the first host's launch_runs_directory, else runs beside its inventory.

    A relative path also starts beside the inventory, so that it does not depend on the current directory.
    """
    members = task_vars["groups"].get(group, [])
    host = task_vars["hostvars"][members[0]] if members else {}
    beside = Path(host.get("inventory_dir") or task_vars["playbook_dir"])
    return beside / Path(given or host.get("launch_runs_directory") or "runs").expanduser()


def close_record(directory: Path, args: dict[str, Any]) -> dict[str, Any]:
    """Write the verdict, show it, and fail if the run did not succeed, unless that is left to another task."""
    record = directory / args["run_id"]
    plan, reads = args["plan"], args["reads"]
    master = plan["nodes"][0]["name"]
    # rank 0's result, even if it came only after the watch had lost the node
    result = args["result"] if args["result"] is not None else (reads.get(master) or {}).get("result")
    unseen = [run for run in reads.values() if run is not None and run["state"] in ACTIVE_STATES]
    if result is None and (unseen or not any(reads.values())):
        others = "1 other node says" if len(unseen) == 1 else f"{len(unseen)} other nodes say"
        where = f"{others} the run is still active" if unseen else "no node is reachable from here"
        message = (
            f"lost contact with run {args['run_id']}: {master} does not answer and {where}. The run may still be "
            f"active: check with ansible-playbook status.yml -e run_id={args['run_id']}"
        )
        raise Refusal(as_typed(message), result={"changed": False})
    verdict = verdict_on(plan, result, reads)
    said = reported_in(reads.get(master)) | args["said"]
    answer = settle(record, verdict, said, watched=args["result"] is not None)
    if args["fail"] and verdict["state"] != "succeeded":
        # without the verdict, which is already on the screen: Ansible prints a failed task's whole result
        raise Refusal(
            f"run {verdict['run_id']} {verdict['state']}", result={"changed": True, "record": answer["record"]}
        )
    return answer


def require_success(verdict: dict[str, Any]) -> dict[str, Any]:
    """Fail if a run did not succeed, after its verdict was shown."""
    if verdict["state"] != "succeeded":
        raise Refusal(f"run {verdict['run_id']} {verdict['state']}", result={"changed": False})
    return {"changed": False}


def reported_in(run: dict[str, Any] | None) -> dict[str, Any]:
    """The job's own reports, read on rank 0's node."""
    return (run or {}).get("said") or {}


def verdict_on(plan: dict[str, Any], result: dict[str, Any] | None, reads: dict[str, Any]) -> dict[str, Any]:
    """How a run ended: from rank 0's result if there is one, else from the nodes' statuses."""
    return from_hub(plan, result) if result is not None else without_hub(plan, reads, time.time())


def show(verdict: dict[str, Any], written: str, said: dict[str, Any], watched: bool) -> None:
    """Show the failed rank's last output, and the verdict, with cause and remedy if the catalogue knows them."""
    failure = verdict["first_failure"]
    explanation = explain_failure(failure["error"], failure.get("last_lines", [])) if failure else None
    last_lines = render_last_lines(verdict, watched)
    if last_lines:
        Display().display(last_lines)
    Display().display(as_typed(render_verdict(verdict, written, said, explanation)))


def settle(record: Path, verdict: dict[str, Any], said: dict[str, Any], watched: bool = False) -> dict[str, Any]:
    """Write the verdict into the record, and show it even if the record cannot be written.

    watched: whether the run was shown until its end.
    """
    path = record / "result.json"
    written = str(path)
    try:
        write(path, verdict | {"said": said})
        (record / "token").unlink(missing_ok=True)
    except OSError as problem:  # another user's record, a removed one, or a full disk
        written = ""
        Display().warning(
            f"cannot write the verdict to {path}: {problem.strerror}; free up space there or take ownership of the "
            + as_typed(f"directory, then run ansible-playbook status.yml -e run_id={verdict['run_id']}")
        )
    show(verdict, written, said, watched)
    return {"changed": bool(written), "record": written, "verdict": verdict}


def judge_record(directory: Path, args: dict[str, Any]) -> dict[str, Any]:
    """Show the verdict of a run that nobody has watched to its end, and write it if it is missing.

    Does nothing if the run is or may be alive. If rank 0's node does not answer, the other nodes' statuses count, if
    all can be read; the verdict is corrected once rank 0's result is available.
    """
    record = directory / (args["run_id"] or LATEST)
    nothing = {"changed": False, "record": "", "verdict": None}
    try:
        plan = json.loads((record / "plan.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return nothing  # launched from another machine
    path = record / "result.json"
    reads = args["reads"]
    master = reads.get(plan["nodes"][0]["name"])
    said: dict[str, Any] = {}
    if path.exists():
        verdict = json.loads(path.read_text(encoding="utf-8"))
        said = verdict.pop("said")
        # a verdict made without rank 0's result is corrected if that is available now
        if verdict["started"] is not None or not (master and master["result"]):
            show(verdict, str(path), said, watched=False)
            return {"changed": False, "record": str(path), "verdict": verdict}
    runs = [run for run in reads.values() if run is not None]
    if any(run["run_id"] != plan["run_id"] for run in runs):
        return nothing
    others = [reads.get(node["name"]) for node in plan["nodes"][1:]]
    if master is None and (not others or None in others):  # a node that does not answer may know more
        return nothing
    result = master["result"] if master else None
    if result is None and any(run["state"] in ACTIVE_STATES for run in runs):
        cost = so_far(plan, master.get("started") if master else None, time.time())
        if cost:
            Display().display(f"run {plan['run_id']} {cost}")
        return nothing
    return settle(record, verdict_on(plan, result, reads), said | reported_in(master))


class ActionModule(ActionBase):
    """Reads and writes below one directory on the controller."""

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
        if args["state"] == "read":
            refuse_what_has_no_effect(task_vars)
            answer = read_record(directory, args["run_id"], members_of(args["group"], task_vars["groups"]))
            if answer["plan"] is None or len(answer["names"]) < len(answer["plan"]["nodes"]):
                refuse_unread_sources(task_vars["hostvars"])  # an unread source may hold the missing nodes
            return answer
        if self._task.check_mode:
            record = str(directory / args["run_id"])
            return {"changed": args["state"] != "judged", "run_id": args["run_id"], "record": record}
        if args["state"] == "judged":
            return judge_record(directory, args)
        if args["state"] == "opened":
            return open_record(directory, args["run_id"], args["plan"])
        if args["state"] == "dropped":
            return drop_record(directory, args["run_id"])
        return close_record(directory, args)
