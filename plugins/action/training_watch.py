# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module training_watch: shows a running job, over one connection for any number of nodes."""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.job_results import reported
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
    duration,
    report_in_words,
    silence_in_words,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import NodeRefusal, call_node

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "required": True},
    "node": {"type": "str", "required": True},
    "local_rank": {"type": "int", "default": 0},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "progress_interval": {"type": "int", "default": 30},
    "patience": {"type": "int", "default": 30},
}
LONG_POLL = 5.0  # seconds that the node waits for news before it answers
ANSWER_PATIENCE = 15.0  # more seconds until an answer counts as missing: ssh itself may wait for many minutes


class Answers:
    """Calls the node in a thread, so that a hanging connection does not block the watch."""

    def __init__(self, action: ActionBase, task_vars: dict[str, Any]) -> None:
        self.action = action
        self.task_vars = task_vars

    def _call(self, request: dict[str, Any], answers: queue.Queue[Any]) -> None:
        try:
            answers.put(call_node(self.action, "_run.dispatch", request, self.task_vars))
        except Exception as problem:  # passed to the waiting thread, whatever it is
            answers.put(problem)

    def ask(self, request: dict[str, Any], patience: float) -> dict[str, Any]:
        """The node's answer. Raises AnsibleConnectionFailure if none arrives in time."""
        answers: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._call, args=(request, answers), daemon=True).start()
        try:
            answer = answers.get(timeout=patience)
        except queue.Empty:
            raise AnsibleConnectionFailure(f"no answer within {patience:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Any] = answer
        return result


def visible(line: str) -> str:
    """A line as a terminal shows it: the text after the last carriage return."""
    return line.rstrip("\r").rpartition("\r")[2]


class ActionModule(ActionBase):
    """Watches until the run has ended, or its node has been silent for ``patience`` seconds."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the run; return how it ended."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        return self.watch(args, Answers(self, task_vars))

    def watch(self, args: dict[str, Any], answers: Answers) -> dict[str, Any]:
        """Ask, show, ask again."""
        display = Display()
        request = {**args, "operation": "watch", "wait": LONG_POLL, "cursors": {}}
        said: dict[str, Any] = {}
        last = newest = ""
        heard = progress = time.monotonic()
        alive = ""  # only rank 0's node knows
        parent = os.getppid()
        while os.getppid() == parent:
            try:
                answer = answers.ask(request, LONG_POLL + ANSWER_PATIENCE)
            except NodeRefusal as problem:
                return {"failed": True, "msg": str(problem.message), "lost": False, "result": None, "said": said}
            except (AnsibleError, OSError) as problem:
                # Other failures may be temporary: the network, or a node that is briefly short of memory or
                # processes while the run goes on. (OSError: this machine cannot start the connection.)
                silent = time.monotonic() - heard
                if silent > args["patience"]:
                    why = " ".join(str(problem).split())
                    display.display(f"[muster] {args['node']} has not answered for {silent:.0f} s: {why}")
                    return {"changed": False, "lost": True, "result": None, "said": said}
                time.sleep(1.0)
                continue
            now = heard = time.monotonic()
            request["cursors"] = answer["cursors"]
            for log, size in answer["left_out"].items():
                display.display(f"[muster] {size / 1e6:.0f} MB of output skipped; full log: {args['node']}:{log}")
            for text in answer["outputs"].values():
                for line in text.split("\n"):
                    shown = visible(line)
                    report = reported(shown)
                    if report is not None:
                        said.update(report)
                        newest = report_in_words(report) or newest
                    elif shown:
                        last = shown.strip() or last
                        display.display(shown)
            last = answer["unfinished"] or last
            for event in answer["events"]:
                display.display(f"[muster] {event['text']}")
            status = answer["status"]
            if status.get("nodes"):
                well = sum(node["state"] in ("ready", "running", "ended") for node in status["nodes"])
                alive = f" nodes alive: {well} of {len(status['nodes'])};"
            if not answer["active"]:
                return {
                    "changed": False,
                    # nodes: it is rank 0's status, which alone has the result
                    "lost": answer["result"] is None and (status["state"] == "died" or "nodes" in status),
                    "result": answer["result"],
                    "status": status,
                    "said": said,
                }
            if now - progress >= args["progress_interval"]:
                progress = now
                elapsed = duration(status.get("updated", 0.0) - status.get("started", 0.0))
                told = [f"reported: {newest[:160]}"] * bool(newest) + [f"last line: {last[:160]}"] * bool(last)
                words = f"{alive}{silence_in_words(answer['silence'])} {'; '.join(told) or 'no output yet'}"
                display.display(f"[muster] {elapsed}{words}")
        # ansible-playbook and its terminal are gone: nobody reads the output, and writing it would finally block
        return {"changed": False, "lost": True, "result": None, "said": said}
