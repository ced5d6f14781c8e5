# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_profile: profiles a node's ranks, or merges and shows all nodes' profiles."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.profile_documents import IDENTIFIER
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import open_private
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PROFILE_CALL_GRACE_PERIOD
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._profile.summary import (
    FILE,
    Profile,
    format_profile,
    summarize,
    unknown_ranks,
    validate_ranks,
)
from ansible_collections.muster.training.plugins.plugin_utils._profile.timeline import RankTrace, merge_traces
from ansible_collections.muster.training.plugins.plugin_utils._record.free_space import require_free_space
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file
from ansible_collections.muster.training.plugins.plugin_utils._text.missing_reply import describe_missing_reply

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "default": ""},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "steps": {"type": "int", "default": 5},
    "ranks": {"type": "str", "default": ""},
    "timeout": {"type": "int", "default": 300},
    "record": {"type": "path", "default": ""},
    "results_by_node": {"type": "dict"},
}
PIECE = {"data": str, "last": bool}
MAX_STEPS = 1000
MAX_PACKED = 512 << 20  # bytes of a rank's compressed trace
DIRECTORY = "profiles"  # directory in the record


def parse_ranks(text: str) -> list[int]:
    """Parse ranks such as "0,3-5"; return [] for all ranks. Raise AnsibleActionFail if they are invalid."""
    ranks: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise AnsibleActionFail(
                adapt_commands(
                    f"profile_ranks is {ascii(text)[:60]}. Use numbers and ranges of ranks: "
                    "ansible-playbook profile.yml -e profile_ranks=0,3-7"
                )
            )
        ranks += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(ranks))


def trace_name(rank: int | str) -> str:
    """Return the file name of a rank's trace in a record, or a glob pattern if `rank` is "*"."""
    return f"rank-{rank}.json.gz"


class ActionModule(ActionBase):
    """Action plugin. Makes one call to the node and one per 8 MiB of traces, or none if it shows earlier results."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Profile ranks on this node, or show the profiles from all nodes."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        ranks = parse_ranks(args["ranks"])
        if not 1 <= args["steps"] <= MAX_STEPS:
            raise AnsibleActionFail(
                adapt_commands(
                    f"steps is {args['steps']}: use a number from 1 to {MAX_STEPS}, such as ansible-playbook "
                    "profile.yml -e profile_steps=5"
                )
            )
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        if args["results_by_node"] is not None:
            return self.show(args)
        request = {
            **{name: args[name] for name in ("run_id", "runs_directory", "user", "steps")},
            "node": task_vars["inventory_hostname"],
            "ranks": ranks,
            "seconds": args["timeout"],
        }
        timeout = args["timeout"] + PROFILE_CALL_GRACE_PERIOD
        reply = call_node(self, "_run.dispatch", {**request, "operation": "profile"}, task_vars, timeout)
        results = validate_ranks(reply)
        if results is None:
            raise AnsibleActionFail(f"{request['node']} sent an invalid reply instead of a profile")
        if IDENTIFIER.fullmatch(reply["id"]):
            self.fetch(args, {**request, "id": reply["id"]}, results, task_vars)
        return {**reply, "ranks": results}

    def fetch(
        self, args: dict[str, Any], request: dict[str, Any], results: list[dict[str, Any]], task_vars: dict[str, Any]
    ) -> None:
        """Fetch the traces of a node's ranks into the record, and remove them from the node."""
        target = Path(args["record"]) / DIRECTORY
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        request = {**request, "operation": "profile_piece"}
        for result in results:
            if result["error"]:
                continue
            require_free_space(target, result["size"], f"the trace of rank {result['rank']}")
            with open(target / trace_name(result["rank"]), "wb", opener=open_private) as stream:
                is_last = False
                while not is_last and stream.tell() <= min(result["size"], MAX_PACKED):
                    piece = call_node(
                        self,
                        "_run.dispatch",
                        {**request, "pid": result["pid"], "offset": stream.tell()},
                        task_vars,
                    )
                    is_last = self.write_piece(stream, piece, request["node"])
        call_node(self, "_run.dispatch", {**request, "pid": 0, "offset": -1}, task_vars)

    @staticmethod
    def write_piece(stream: Any, piece: Any, node: str) -> bool:
        """Append a chunk of a trace; return whether it is the last one. Raise AnsibleActionFail if it is invalid."""
        try:
            if conforms(piece, PIECE):
                stream.write(base64.b64decode(piece["data"], validate=True))
                return bool(piece["last"])
        except ValueError:
            pass
        raise AnsibleActionFail(f"{node} sent an invalid reply instead of a trace")

    def show(self, args: dict[str, Any]) -> dict[str, Any]:
        """Merge the traces, write the summary to the record and show it."""
        nodes, missing = {}, []
        for name, reply in args["results_by_node"].items():
            results = validate_ranks(reply)
            if results is None:
                missing.append(describe_missing_reply(name, reply))
            else:
                nodes[name] = results
        missing += unknown_ranks(parse_ranks(args["ranks"]), args["results_by_node"].values())
        profile = summarize(args["run_id"], time.time(), nodes, missing)
        if not profile["ranks"]:
            raise AnsibleActionFail(adapt_commands("\n".join(format_profile(profile))))
        timeline = self.merge(profile, Path(args["record"]))
        display = Display()
        display.display("\n".join(format_profile(profile)))
        display.display(f"timeline of all ranks: {timeline}")
        display.display("To view it, drop the file onto https://ui.perfetto.dev, which keeps the data in the browser")
        return {"changed": True, "profile": profile, "timeline": str(timeline)}

    @staticmethod
    def merge(profile: Profile, record: Path) -> Path:
        """Write the timeline and the summary to the record; return the timeline's path."""
        directory = record / DIRECTORY
        traces = [
            RankTrace(entry["rank"], entry["node"], directory / trace_name(entry["rank"]), entry["clock_offset"])
            for entry in profile["ranks"]
        ]
        for path in set(directory.glob(trace_name("*"))) - {trace.path for trace in traces}:
            path.unlink()  # a file of an earlier profile
        errors = merge_traces(traces, directory / "timeline.json.gz")
        profile["missing"] += [f"rank {rank} in the timeline: {error}" for rank, error in errors.items()]
        profile["timeline"] = f"{DIRECTORY}/timeline.json.gz"
        write_file(record / FILE, json.dumps(profile, indent=1, allow_nan=False) + "\n")
        return directory / "timeline.json.gz"
