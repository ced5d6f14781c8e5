# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module training_watch: shows a running job, over a single connection for any number of
nodes.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.compilers import COMPILERS
from ansible_collections.muster.training.plugins.module_utils._run.job_results import add_report, parse_report
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    TIME,
    Between,
    Maybe,
    conforms,
    validate_result,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    LONG_POLL_TIMEOUT,
    REPLY_GRACE_PERIOD,
    RETRY_INTERVAL,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import (
    format_report,
    format_silence,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import NodeRequestError, call_node
from ansible_collections.muster.training.plugins.plugin_utils._plan.debug_tunnel import DebugTunnel
from ansible_collections.muster.training.plugins.plugin_utils._plan.shell_command import SSH_OPTIONS
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import end_play_without_reader
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import (
    describe_skipped_output,
    printable,
    visible_text,
)

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "required": True},
    "node": {"type": "str", "required": True},
    "local_rank": {"type": "int", "default": 0},
    "attempt": {"type": "int", "default": 0},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "progress_interval": {"type": "int", "default": 30},
    "reply_timeout": {"type": "int", "default": 30},
    "control_sequences": {"type": "bool", "default": False},
    "debugger": {"type": "dict"},
}
ATTEMPT_LOG = re.compile(r"/node[0-9]+/attempt-([1-9][0-9]{0,2})/")

MAX_ATTEMPTS = 1000
MAX_REPORTED = 1000  # number of values reported by a job; a script may use a new name in each step
DEBUGGER = "debugger"  # event kind for a rank that is being debugged; the event names its node

# The reply to a request for news, from a node that is trusted as little as its job.
NEWS = {
    "active": bool,
    "status": {
        "state": str,
        "message": Maybe(str),
        "started": Maybe(TIME),
        "updated": Maybe(TIME),
        "nodes": Maybe([{"state": str}]),
        "attempt": Maybe(range(1000)),
    },
    "outputs": dict,
    "left_out": dict,
    "seconds_since_output": Maybe(Between(0, 1e11)),
    "compilers": Maybe([str]),
    "events": [{"text": str}],
    "unfinished": str,
    "cursors": dict,
    "result": Maybe(dict),
}


def keep_report(reported: dict[str, Any], report: dict[str, Any]) -> None:
    """Add a job's report to the values reported so far, of which the newest MAX_REPORTED are kept."""
    add_report(reported, report)
    for name in list(reported)[: max(0, len(reported) - MAX_REPORTED)]:
        del reported[name]


class Piece(NamedTuple):
    """A part of a node's updates: log output or, if the name is empty, an event; and the attempt that it starts."""

    log: str
    text: str
    attempt: int | None = None


def format_compilers(names: list[str] | None) -> str:
    """Return a clause about the compilers that a silent job is running, or an empty string."""
    shown = ", ".join(sorted(COMPILERS.intersection(names or ())))
    return f" it compiles an extension ({shown});" if shown else ""


def split_at_start(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split events into those up to the start of the ranks, which precede any output, and those after it."""
    starts = [index for index, event in enumerate(events, 1) if event.get("event") == "go"]
    return events[: starts[-1]] if starts else [], events[starts[-1] :] if starts else events


def attempt_of(log: str) -> int:
    """Return the attempt of the run that a log belongs to."""
    match = ATTEMPT_LOG.search(log)
    return int(match[1]) if match is not None else 0


def split_at_attempts(events: list[dict[str, Any]]) -> list[tuple[int, list[dict[str, Any]]]]:
    """Split events at the start of each attempt; return each group with the number of the attempt that it starts."""
    sections: list[tuple[int, list[dict[str, Any]]]] = [(0, [])]
    for event in events:
        if event.get("event") == "attempt" and conforms(event.get("attempt"), range(MAX_ATTEMPTS)):
            sections.append((event["attempt"], []))
        sections[-1][1].append(event)
    return sections


def order_pieces(reply: dict[str, Any], node: str) -> Iterator[Piece]:
    """Yield the parts of a node's updates in display order, attempt by attempt.

    The last output of an attempt comes before the start of the next one.
    """
    outputs = {**dict.fromkeys(reply["left_out"], ""), **reply["outputs"]}
    sections = split_at_attempts(reply["events"])
    ends = [number for number, _events in sections[1:]] + [MAX_ATTEMPTS]
    for index, (number, events) in enumerate(sections):
        if index:
            yield Piece("", events.pop(0)["text"], number)
        earlier_events, later_events = split_at_start(events)
        yield from (Piece("", event["text"]) for event in earlier_events)
        for log in [log for log in outputs if attempt_of(log) < ends[index]]:
            if log in reply["left_out"]:
                yield Piece("", describe_skipped_output(reply["left_out"][log], node, log))
            yield Piece(log, outputs.pop(log), attempt_of(log))
        yield from (Piece("", event["text"]) for event in later_events)


class AttemptHeadings:
    """Adds a heading before each attempt's output, unless the attempt's start event is shown."""

    def __init__(self) -> None:
        self.attempt = 0

    def add(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield the pieces and the headings."""
        for piece in pieces:
            if piece.attempt is not None:
                if piece.log and piece.attempt != self.attempt:
                    yield Piece("", f"output of attempt {piece.attempt}:")
                self.attempt = piece.attempt
            yield piece


class ActionModule(ActionBase):
    """Action plugin that watches until the run ends, or its node has been silent for ``reply_timeout`` seconds."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the run; return how it ended."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        variables_of = functools.partial(self.variables_of, task_vars)
        with DebugTunnel(args.pop("debugger"), args["run_id"], variables_of, Display().display) as tunnel:
            return self.watch(args, functools.partial(self.poll, task_vars, tunnel=tunnel))

    def variables_of(self, task_vars: dict[str, Any], name: str) -> dict[str, Any] | None:
        """Return the variables used to reach a node of the play, or None if the name is not one of its nodes."""
        if name not in task_vars.get("ansible_play_hosts_all", ()):
            return None
        hostvars = task_vars["hostvars"][name]
        names = (
            "ansible_host",
            "ansible_connection",
            "ansible_ssh_common_args",
            *(option[1] for option in SSH_OPTIONS),
        )
        return {name: self._templar.template(hostvars[name]) for name in names if name in hostvars}

    def poll(
        self, task_vars: dict[str, Any], request: dict[str, Any], tunnel: DebugTunnel | None = None
    ) -> dict[str, Any]:
        """Return the node's updates, and point the tunnel to the rank being debugged.

        Raise AnsibleConnectionFailure if they do not arrive in time or are invalid.
        """
        timeout = LONG_POLL_TIMEOUT + REPLY_GRACE_PERIOD
        reply = call_node(self, "_run.dispatch", request, task_vars, timeout)
        if not conforms(reply, NEWS):
            raise AnsibleConnectionFailure("the node sent an invalid reply")
        for event in reply["events"]:
            if tunnel is not None and event.get("event") == DEBUGGER:
                tunnel.follow(event.get("node"))
        return {**reply, "result": validate_result(reply["result"])}

    def watch(self, args: dict[str, Any], poll: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:  # noqa: C901
        """Poll the node and show its output until the run has ended or is lost."""
        display = Display()
        request = {**args, "operation": "watch", "wait": LONG_POLL_TIMEOUT, "cursors": {}}
        headings = AttemptHeadings()
        reported: dict[str, Any] = {}
        last_line = newest_report = ""
        last_reply = progress = time.monotonic()
        alive = ""  # only the node that leads the run knows
        attempt = 0
        parent = os.getppid()
        while os.getppid() == parent:
            end_play_without_reader(parent)
            try:
                reply = poll(request)
            except NodeRequestError as error:
                return {
                    "failed": True,
                    "msg": str(error.message),
                    "contact_lost": False,
                    "result": None,
                    "job_results": reported,
                }
            except (AnsibleError, OSError) as error:
                # Other failures may be temporary: the network, or a node that is briefly short of memory or
                # processes while the run continues. (OSError: this machine cannot start the connection.)
                silent = time.monotonic() - last_reply
                if silent > args["reply_timeout"]:
                    reason = " ".join(str(error).split())
                    display.display(f"[muster] {args['node']} has not responded for {silent:.0f} s: {reason}")
                    return {
                        "changed": False,
                        "contact_lost": True,
                        "result": None,
                        "job_results": reported,
                        "attempt": attempt,
                    }
                time.sleep(RETRY_INTERVAL)
                continue
            now = last_reply = time.monotonic()
            request["cursors"] = reply["cursors"]
            if args.get("attempt"):
                reply["events"] = [event for event in reply["events"] if not event.get("replicated")]
            for piece in headings.add(order_pieces(reply, args["node"])):
                if not piece.log:
                    display.display(f"[muster] {printable(piece.text)}")
                    continue
                for line in piece.text.split("\n"):
                    visible_line = visible_text(line, args["control_sequences"])
                    report = parse_report(visible_line)
                    if report is not None:
                        keep_report(reported, report)
                        newest_report = format_report(report) or newest_report
                    elif visible_line:
                        last_line = visible_line.strip() or last_line
                        display.display(visible_line)
            last_line = printable(reply["unfinished"]) or last_line
            status = reply["status"]
            attempt = status.get("attempt") or attempt
            if status.get("nodes"):
                alive_count = sum(node["state"] in ("ready", "running", "ended", "spare") for node in status["nodes"])
                alive = f" nodes alive: {alive_count} of {len(status['nodes'])};"
            if not reply["active"]:
                return {
                    "changed": False,
                    # nodes: the status of the node that leads the run, the only one that has the result
                    "contact_lost": (reply["result"] is None and (status["state"] == "died" or "nodes" in status))
                    or bool((reply["result"] or {}).get("cut_off")),  # then another node may lead the run
                    "result": reply["result"],
                    "status": status,
                    "job_results": reported,
                    "attempt": attempt,
                }
            if now - progress >= args["progress_interval"]:
                progress = now
                elapsed = format_duration((status.get("updated") or 0.0) - (status.get("started") or 0.0))
                details = [f"reported: {newest_report[:160]}"] * bool(newest_report) + [
                    f"last line: {last_line[:160]}"
                ] * bool(last_line)
                exited = f" {printable(str(status['exited']))[:400]};" if status.get("exited") else ""
                idle = format_silence(reply["seconds_since_output"]) + format_compilers(reply.get("compilers"))
                summary = f"{alive}{exited}{idle} {'; '.join(details) or 'no output yet'}"
                display.display(f"[muster] {elapsed}{summary}")
        # ansible-playbook and its terminal have exited: nothing reads the output, and writing to it would eventually
        # block
        return {"changed": False, "contact_lost": True, "result": None, "job_results": reported, "attempt": attempt}
