# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the documents in a run directory. The job may have removed any of them, or replaced it with anything.

A document counts only if its fields have their types and ranges; otherwise it counts as missing. The controller checks
the documents in a node's replies in the same way: plugin_utils/_record/node_replies.py.
"""

from __future__ import annotations

import collections
import json
import os
import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    MAX_JSON_BYTES,
    parse_json,
    read_bytes,
    read_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import ATTEMPT_LOGS

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, NodeReport

# In a schema: a number in a range, excluding nan; a field that may be missing or null.
Between = collections.namedtuple("Between", "low high")
Maybe = collections.namedtuple("Maybe", "schema")

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")  # name of a node, on a single line
PATH = re.compile(r"/[^\0]{0,4095}")
RANK = range(10**6)
TIME = Between(-1e11, 1e11)  # seconds since 1970
DURATION = Between(0, 1e7)  # seconds
RUN_STATES = (
    *("starting", "running", "stopping", "ended", "restarting", "spare"),
    *("succeeded", "failed", "stopped", "interrupted"),
)
FINAL_STATES = ("succeeded", "failed", "stopped", "interrupted")
NODE_STATES = ("waiting", "ready", "running", "ended", "lost", "spare")

SUPERVISOR = {"pid": range(2, 2**22 + 1), "boot": Maybe(str), "oom_kills": Maybe(range(2**63))}
PLAN = {
    "run_id": RUN_ID,
    "unit": str,
    "rank_logs": ("torchrun", "ranks", "launcher"),
    "node": {"name": NAME, "node_rank": RANK, "first_rank": RANK, "slots": range(10**4 + 1)},
    "nodes": [{"name": NAME}],
    "world_size": RANK,
    "working_directory": PATH,
    "temporary_directory": Maybe(PATH),
    "timeouts": {"grace": DURATION},
    "gpus": Maybe([range(1000)]),
    "outputs": Maybe([str]),
    "files": Maybe(dict),
    "attempt": Maybe(range(1000)),
    "logs": Maybe(ATTEMPT_LOGS),
}
STATUS = {
    "state": RUN_STATES,
    "message": str,
    "since": TIME,
    "started": Maybe(TIME),
    "updated": Maybe(TIME),
    "report": Maybe(dict),
    "attempt": Maybe(range(1000)),
    "lost": Maybe(str),
    "hub": Maybe(RANK),
    "nodes": Maybe([{"name": NAME, "node_rank": RANK, "state": NODE_STATES, "since": TIME}]),
    "missing": Maybe([{"name": NAME, "node_rank": RANK, "excluded": bool}]),
}
RESULT = {
    "run_id": RUN_ID,
    "state": FINAL_STATES,
    "reason": str,
    "first_node": Maybe(NAME),
    "world_size": RANK,
    "nnodes": RANK,
    "started": Maybe(TIME),
    "ended": TIME,
    "ended_early": Maybe([RANK]),
    "nodes": [
        {
            "name": NAME,
            "node_rank": RANK,
            "state": NODE_STATES,
            "since": TIME,
            "report": Maybe(dict),
            "lost_reason": Maybe(str),
            "survived": Maybe(bool),
            "launcher_log": str,
        }
    ],
    "attempts": Maybe(
        [
            {
                "number": range(1000),
                "nodes": [NAME],
                "started": TIME,
                "ended": TIME,
                "end_class": str,
                "node": str,
                "reason": str,
                "checkpoint": str,
                "step": Maybe(range(10**16)),
                "unit": Maybe(("step", "epoch")),
                "saved": Maybe(TIME),
                "last_step": Maybe(range(10**16)),
                "unusable": Maybe(dict),
                "noticed": Maybe(TIME),
                "silent": Maybe(DURATION),
            }
        ]
    ),
    "not_restarted": Maybe(str),
    "broken": Maybe([{"node": NAME, "text": str}]),
    "hub": Maybe(RANK),
    "cut_off": Maybe(bool),
    "notice": Maybe({"source": str, "node": str, "text": str, "seconds": DURATION}),
}
MAX_SUPERVISOR_BYTES = 4096
MAX_STATUS_BYTES = 4 * 2**20
MAX_RESULT_BYTES = 32 * 2**20  # a node's report is smaller than 64 KiB

# A report's fields, their types, and the default for a value that is missing or of another type.
REPORT_FIELDS: tuple[tuple[str, type, Any], ...] = (
    ("exit_code", int, None),
    ("reason", str, ""),
    ("state", str, "ended"),
    ("ended", float, None),
    ("ranks", list, []),
    ("launcher_error", str, ""),
    ("launcher_log", str, ""),
    ("oom_kills", int, 0),
    ("limit_hits", int, 0),
    ("stuck", list, []),
    ("mounts", dict, {}),
    ("gpus", str, ""),
    ("health", list, []),
    ("ended_by_us", bool, False),
    ("shutdown", bool, False),
    ("container", str, ""),
    ("unwritten", str, ""),
    ("shortened", str, ""),
    ("last_log", str, ""),
    ("last_lines", str, ""),
    ("outputs", list, []),
    ("stacks", list, []),
    ("operations", list, []),
    ("nccl", list, []),
)
RANK_FIELDS: tuple[tuple[str, type, Any], ...] = (
    ("rank", int, -1),
    ("local_rank", int, -1),
    ("exit_code", int, None),
    ("error", str, ""),
    ("log", str, ""),
)
EXCERPT = {"log": str, "lines": str}
HEALTH_FIELDS = ("text", "gpu", "hardware")
MAX_HEALTH, MAX_HEALTH_TEXT = 50, 1000
MARKS = ("closed", "first", "ended_by_us", "own_error")  # properties of a rank, present only if they are true
MAX_OUTPUTS, MAX_OUTPUT = 8, 20_000  # excerpts of logs in a report, and characters of each


def is_a(kind: type, value: object) -> bool:
    """Return whether a value from JSON is of this type; true and false are not numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def conforms(value: Any, schema: Any) -> bool:
    """Return whether a value from JSON has the types and ranges of a schema; a dictionary may have more fields.

    schema: a type, a range of integers, a Between, a pattern for a text, a tuple of texts, a list with the schema of
    its entries, or a dictionary with the schema of each field.
    """
    if isinstance(schema, type):
        return is_a(schema, value)
    if isinstance(schema, range):
        return is_a(int, value) and int(value) in schema  # a subclass of int would be compared with each number
    if isinstance(schema, Between):
        return (is_a(int, value) or is_a(float, value)) and bool(schema.low <= value <= schema.high)
    if isinstance(schema, Maybe):
        return value is None or conforms(value, schema.schema)
    if isinstance(schema, tuple):
        return isinstance(value, str) and value in schema
    if isinstance(schema, list):
        return isinstance(value, list) and all(conforms(entry, schema[0]) for entry in value)
    if isinstance(schema, dict):
        return isinstance(value, dict) and all(conforms(value.get(name), field) for name, field in schema.items())
    return isinstance(value, str) and schema.fullmatch(value) is not None


def is_exit_code(code: object) -> bool:
    """Return whether a value is an exit code in Popen's form."""
    return isinstance(code, int) and not isinstance(code, bool) and -128 < code < 256


def validate_report(received: Mapping[str, Any]) -> NodeReport:
    """Return a node's report with each field converted to its type, so that it cannot crash its readers."""
    report: Any = {
        name: received[name] if is_a(kind, received.get(name)) else default for name, kind, default in REPORT_FIELDS
    }
    if not is_exit_code(report["exit_code"]):
        report["exit_code"] = None
    report["ranks"] = [
        {
            **{name: rank[name] if is_a(kind, rank.get(name)) else other for name, kind, other in RANK_FIELDS},
            **{mark: True for mark in MARKS if rank.get(mark) is True},
            **({"before_end": float(rank["before_end"])} if conforms(rank.get("before_end"), DURATION) else {}),
        }
        for rank in report["ranks"]
        if isinstance(rank, dict)
    ]
    for rank in report["ranks"]:
        if not is_exit_code(rank["exit_code"]):
            rank["exit_code"] = None
    report["outputs"] = [
        {"log": excerpt["log"], "lines": excerpt["lines"][-MAX_OUTPUT:]}
        for excerpt in report["outputs"][:MAX_OUTPUTS]
        if conforms(excerpt, EXCERPT)
    ]
    report["stuck"] = [pid for pid in report["stuck"] if is_a(int, pid)]
    report["health"] = [
        {name: text[:MAX_HEALTH_TEXT] for name, text in finding.items() if name in HEALTH_FIELDS}
        for finding in report["health"][:MAX_HEALTH]
        if isinstance(finding, dict) and all(isinstance(finding.get(name), str) for name in HEALTH_FIELDS)
    ]
    report["mounts"] = {point: error for point, error in report["mounts"].items() if isinstance(error, str)}
    return report


def validate_status(value: Any) -> Data | None:
    """Return a node's status with a valid report; None if it is invalid."""
    if not conforms(value, STATUS):
        return None
    return {**value, "report": validate_report(value["report"]) if value.get("report") is not None else None}


def validate_result(value: Any) -> Data | None:
    """Return a run's result with valid reports; None if it is invalid."""
    if not conforms(value, RESULT):
        return None
    nodes = [
        {**node, "report": validate_report(node["report"]) if node.get("report") is not None else None}
        for node in value["nodes"]
    ]
    return {"started": None, **value, "nodes": nodes}


def plan_text(plan: Mapping[str, Any]) -> str:
    """Return the content of plan.json; is_of_another_node() depends on its format."""
    return json.dumps(plan, indent=1, sort_keys=True)


def is_of_another_node(directory: str, name: str) -> bool:
    """Return whether the plan in a run directory certainly belongs to another node than the one with this name.

    Reads only the part of the plan about its own node: in a home that all nodes share, there are as many plans as
    nodes, and each lists all of them.
    """
    try:
        plan = read_bytes(os.path.join(directory, "plan.json"), MAX_JSON_BYTES)
        node = parse_json(plan.partition(b'\n "node": ')[2].partition(b"\n }")[0].decode("utf-8") + "}")
    except (OSError, ValueError):
        return False
    return isinstance(node, dict) and isinstance(node.get("name"), str) and node["name"] != name


def read_plan(directory: str) -> Data | None:
    """Return the plan in a node's run directory; None if it is missing, invalid, or another run's or node's."""
    plan = read_json(os.path.join(directory, "plan.json"))
    if not conforms(plan, PLAN):
        return None
    same_run = plan["run_id"] == os.path.basename(os.path.dirname(directory))
    same_node = f"node{plan['node']['node_rank']}" == os.path.basename(directory)
    result: Data = plan
    return result if same_run and same_node and plan["unit"] == unit_name(plan["run_id"]) else None


def read_status(directory: str) -> Data | None:
    """Return the status in a node's run directory; None if it is missing or invalid."""
    return validate_status(read_json(os.path.join(directory, "status.json"), MAX_STATUS_BYTES))


def read_result(directory: str) -> Data | None:
    """Return the result in a node's run directory; None if it is missing or invalid."""
    return validate_result(read_json(os.path.join(directory, "result.json"), MAX_RESULT_BYTES))


def read_supervisor_pid(directory: str) -> int | None:
    """Return the pid that a supervisor wrote into its run directory; None if it is missing or invalid."""
    document = read_json(os.path.join(directory, "supervisor.json"), MAX_SUPERVISOR_BYTES)
    return int(document["pid"]) if conforms(document, SUPERVISOR) else None


def read_supervisor_boot(directory: str) -> str:
    """Return the machine boot in which a supervisor was started, or "" if it is missing or invalid."""
    document = read_json(os.path.join(directory, "supervisor.json"), MAX_SUPERVISOR_BYTES)
    return document.get("boot") or "" if conforms(document, SUPERVISOR) else ""


def read_oom_kills(directory: str) -> int | None:
    """Return how many processes the kernel had killed for lack of memory when a supervisor started; None if unknown."""
    document = read_json(os.path.join(directory, "supervisor.json"), MAX_SUPERVISOR_BYTES)
    return document.get("oom_kills") if conforms(document, SUPERVISOR) else None


def unit_name(run_id: str) -> str:
    """Return the name of a run's systemd unit, without ".service"."""
    return f"muster-{run_id}"
