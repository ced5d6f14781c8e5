# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: roll
type: stdout
short_description: One line per role, and each failure once
version_added: 0.1.0
author: The muster contributors (@muster-training)
description:
  - Shows only essential output. For a play that lists roles, this is one line per role - whether it changed anything,
    on which nodes, and how long it took. Roles that had nothing to do are not shown.
  - A task is shown only if it fails, or while it takes longer than O(slow_task_seconds). Nodes that failed with the
    same message share one block, and lists of more than eight nodes are shortened.
  - Output of this collection's modules, such as a plan, a table or the output of a job, is shown unchanged.
  - With a query, such as C(-e jmespath=EXPRESSION), only its result is written to standard output, and failures to
    standard error.
  - With C(-v), C(ANSIBLE_STDOUT_CALLBACK=default), or without C(stdout_callback) in F(ansible.cfg), Ansible's default
    output is shown instead.
options:
  slow_task_seconds:
    description: Seconds after which a task that is still running is shown.
    type: float
    default: 10
    ini:
      - section: callback_roll
        key: slow_task_seconds
    env:
      - name: MUSTER_ROLL_SLOW_TASK_SECONDS
  max_diff_lines:
    description: Maximum number of lines per file that C(--diff) shows. The remaining lines are only counted.
    type: int
    default: 20
    ini:
      - section: callback_roll
        key: max_diff_lines
    env:
      - name: MUSTER_ROLL_MAX_DIFF_LINES
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

import atexit
import contextlib
import functools
import gc
import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import classify_failure
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._command_line.interruption import (
    MARK,
    STATE_VARIABLE,
    describe_interruption,
    interrupt_if_stuck,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.muster_command import typed_command
from ansible_collections.muster.training.plugins.plugin_utils._command_line.yaml_errors import (
    YAML_ERROR,
    find_yaml_error,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import discard_unread_output

MAX_NODES = 8
MAX_OUTPUT_LINES = 10  # number of output lines shown from a failed program
WATCH = "muster.training.training_watch"
REPORT_OWN_PROGRESS = tuple(  # they report their own progress
    f"muster.training.{name}"
    for name in (
        *("training_watch", "long_command", "torch_proof", "deepspeed_proof", "flash_attention", "python_layer"),
        *("fit", "sweep", "rehearse"),
    )
)
PAUSES = ("pause", "ansible.builtin.pause")
CONTROL = {number: None for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}
PREPARATORY = (  # a role that is disabled runs only these tasks
    *("include_tasks", "include_role", "import_tasks", "import_role", "validate_argument_spec", "set_fact"),
    "known_variables",
)
COMMAND_CHECKS = ("known_variables", "job_settings", "check_site")  # these modules check the user's input, not a node
# Ansible's prefix for the message from a plugin that rejects something.
ERROR_PREFIX = re.compile(
    r"\ATask failed: (?:Finalization of task args for '[\w.]+' failed: )?"
    r"(?:Error while resolving value for '[^'\n]*': )?"
    r"(?:[^\n]*?The (?:filter|lookup|test) plugin 'muster\.training\.\w+' failed: )?"
)
MESSAGES = ("debug", "ansible.builtin.debug", "ansible.legacy.debug")
META = ("meta", "ansible.builtin.meta", "ansible.legacy.meta")
PROGRAMS = (".py", ".sh")
HARMLESS_WARNING = "Module remote_tmp "  # a harmless warning from root's first task on each machine


def join_names(nodes: Iterable[str]) -> str:
    """Return the names of nodes on one line, shortened if there are many."""
    unique = list(dict.fromkeys(nodes))
    if len(unique) <= MAX_NODES:
        return " ".join(unique)
    return f"{' '.join(unique[: MAX_NODES - 1])} and {len(unique) - MAX_NODES + 1} more"


def format_duration(seconds: float) -> str:
    """Format seconds as a human-readable duration."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {remainder:02d} s"


def strip_controls(text: str) -> str:
    """Return a text without terminal control sequences, because it may come from a node or a job."""
    return text.translate(CONTROL)


def strip_name(node: str, text: str) -> str:
    """Return the text without the node's name, which is already shown as a prefix."""
    return text.removeprefix(f"{node}: ")


def program(diff: Mapping[str, Any]) -> str:
    """Return the name and length of the program that a diff shows, or an empty string."""
    heads = (str(diff.get(name) or "").removesuffix(" (content)") for name in ("before_header", "after_header"))
    name = next((head for head in heads if head.endswith(PROGRAMS)), "")
    number = len(str(diff.get("after") or "").splitlines())
    return f"{name}: a program, {number} line{'' if number == 1 else 's'}" if name and number else ""


def last_lines(text: str) -> str:
    """Return the end of a program's output."""
    lines = text.rstrip().splitlines()
    return "\n".join([*(["..."] if len(lines) > MAX_OUTPUT_LINES else []), *lines[-MAX_OUTPUT_LINES:]])


def reason(result: Mapping[str, Any]) -> str:
    """Return the text for a failed result: its message and the output of the failed program, without repetition."""
    # censored: from a task with no_log; reason: from a file that cannot be included in ansible-core 2.19
    message = str(result.get("msg") or result.get("censored") or result.get("reason") or "").strip()
    parts = [ERROR_PREFIX.sub("", message)]
    for key in ("module_stderr", "stderr", "module_stdout", "stdout"):
        output = str(result.get(key) or "").strip()
        if output and not any(output in part for part in parts):
            parts.append(last_lines(output))
    return strip_controls("\n".join(part for part in parts if part)) or "failed without a message"


def for_user(text: str) -> str:
    """Return a message with commands as the user types them. Commands of ansible-playbook were adapted where they
    arose.
    """
    return adapt_commands(text) if typed_command() else text


def describe_unreachable(node: str, result: Mapping[str, Any]) -> str:
    """Return the text for an unreachable node: the reason, if known, and what to do."""
    diagnosis = classify_failure(node, reason(result))
    return strip_controls(f"{diagnosis.problem}\nneeded: {diagnosis.requirement}\ndo:     {diagnosis.remedy}")


def rescue_block(task: Any, part: str) -> str:
    """Return the uuid of the block with a rescue section that contains a task in its block or rescue, or an empty
    string.
    """
    child, parent = task, getattr(task, "_parent", None)
    while parent is not None:
        # a result's task is a copy
        if getattr(parent, "rescue", None) and child._uuid in [sibling._uuid for sibling in getattr(parent, part)]:
            return str(parent._uuid)
        child, parent = parent, getattr(parent, "_parent", None)
    return ""


def role_of(task: Any) -> str:
    """Return the name of a task's role without the collection, or an empty string."""
    role = getattr(task, "_role", None)
    return str(role.get_name()).rpartition(".")[2] if role else ""


def outer_role_of(task: Any) -> str:
    """Return the name of the role that the play lists: the task's role, or the role that included it."""
    name, parent = role_of(task), getattr(task, "_parent", None)
    while parent is not None:
        name, parent = role_of(parent) or name, getattr(parent, "_parent", None)
    return name


def parts_of(task: Any, role: str) -> str:
    """Return the parts of its role that a play imported (ROLE_parts), or an empty string if the role has no parts."""
    parent, value = getattr(task, "_parent", None), None
    while parent is not None:
        value = (getattr(parent, "vars", None) or {}).get(f"{role}_parts", value)
        parent = getattr(parent, "_parent", None)
    return ", ".join(str(part) for part in value) if isinstance(value, list) else ""


def lists_roles(play: Mapping[str, Any]) -> bool:
    """Return whether a play, as written, lists roles. A play that imports a single role shows its modules' output."""
    tasks = [name.rpartition(".")[2] for task in play.get("tasks") or [] for name in task]
    return bool(play.get("roles")) or tasks.count("import_role") > 1


def is_query(play: Any) -> bool:
    """Return whether the user requested a query: then only its result goes to stdout, for a program to read."""
    variables = play.get_variable_manager().extra_vars
    return any(name.endswith("jmespath") and value for name, value in variables.items())


@dataclass
class RoleProgress:
    """A role's progress, from its first task onwards."""

    role: str
    started: float
    parts: str = ""  # parts of the role that the play imports; "" for all
    ok: dict[str, None] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)


def unless_verbose(method: Callable[..., None]) -> Callable[..., None]:
    """Use Ansible's own callback if -v requests full output."""

    @functools.wraps(method)
    def either(self: CallbackModule, *args: Any, **kwargs: Any) -> None:
        if self._display.verbosity:
            getattr(super(CallbackModule, self), method.__name__)(*args, **kwargs)
        else:
            method(self, *args, **kwargs)

    return either


class CallbackModule(Default):
    """Callback plugin that shows one line per role, and each failure once."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "muster.training.roll"

    def __init__(self) -> None:
        super().__init__()
        self.playbook = ""
        self.started = time.monotonic()
        self.check = False
        self.with_roles = False  # whether a play's roles are listed; others print through their modules
        self.header_shown = False
        self.query = False  # whether only the play's result is written to stdout
        self.nodes: list[str] = []  # the play's nodes
        self.all_nodes: dict[str, None] = {}  # nodes of all plays that have roles
        self.stage = RoleProgress("", self.started)
        self.play: Any = None
        self.ended = False  # whether all plays have ended, even if they failed
        self.task: Any = None
        self.yaml_errors: set[str] = set()  # texts about YAML files that cannot be parsed
        self.failures: dict[str, list[str]] = {}  # this task's failures: text to nodes
        self.messages: dict[str, list[str]] = {}
        self.self_naming: set[str] = set()  # texts in which the node's own name appeared
        self.diffs: dict[str, list[str]] = {}
        self.items: dict[str, list[str]] = {}  # node to the reasons why its items failed
        self.rescued: dict[tuple[str, str], str] = {}  # block and node to the reason why its rescue runs there
        self.shown_roles: set[str] = set()  # roles whose line was shown
        self.unfinished_run: tuple[str, str] | None = None  # a run that has not ended, and its commands
        self.watched = False  # whether that run was watched
        self.launched = False  # whether there has been a run
        self.unmatched = False  # whether a play had no nodes
        self.interrupted = False  # whether Ctrl-C interrupted the playbook
        # not for playbooks that this playbook runs
        self.state_file = os.environ.pop(STATE_VARIABLE, "")  # where ./muster reads the state after an interruption
        self.written_state = ""
        self.write_state()
        self.catch_interruption()
        # otherwise, when piped to a file or tee, a run's output would appear only after it ends
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        # A worker does not inherit the timer's handler: Ansible refuses tasks with a time limit if it finds a handler.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL))
        atexit.register(discard_unread_output()(self.show_remaining))  # even if nothing else is called, as after Ctrl-C

    # --- output

    def say(self, text: str, color: str | None = None) -> None:
        self._display.display(text, color=color)

    def block(self, title: str, text: str, color: str) -> None:
        """Show a title with several lines of text below it."""
        lines = [title, *(f"    {line}".rstrip() for line in text.splitlines())]
        self._display.display("\n".join(lines), color=color, stderr=self.query)

    def say_in_role(self, text: str) -> None:
        """Show a message; in a play with roles, show it below the name of its role, whose line follows when the role
        ends.
        """
        if self.with_roles and self.stage.role:
            first, *others = text.splitlines() or [""]
            text = "\n".join([f"  {self.stage.role:<18}{first}", *(f"{'':<20}{line}" for line in others)])
        self.say(text)

    def location(self, nodes: Iterable[str]) -> str:
        """Return an event's nodes in inventory order, or "" if they are all the nodes of a play with several."""
        node_set = set(nodes)
        everywhere = len(node_set) > 1 and len(node_set) == len(self.nodes)
        return "" if everywhere else self.names(node_set)

    def names(self, nodes: Iterable[str]) -> str:
        """Return the names of some of the play's nodes as a string, in play order."""
        return join_names(sorted(nodes, key=self.position))

    def position(self, node: str) -> int:
        """Return a node's position in its play, or the last position for a node that was added by another node."""
        return self.nodes.index(node) if node in self.nodes else len(self.nodes)

    def sort_by_node(self, texts: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
        """Sort texts by the nodes they came from, in play order rather than in order of arrival."""
        return sorted(texts.items(), key=lambda item: min(self.position(node) for node in item[1]))

    def end_task(self) -> None:
        """Show the messages of the task that is ending, grouping nodes with the same text."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for text, nodes in self.sort_by_node(self.diffs):
            self.say(f"  {self.names(nodes)}:\n{text}")
        different = len({tuple(nodes) for nodes in self.messages.values()}) > 1
        for text, nodes in self.sort_by_node(self.messages):
            location = self.names(nodes) if different else self.location(nodes) if text in self.self_naming else ""
            self.say_in_role(f"{location}: {text}" if location else text)
        for text, nodes in self.sort_by_node(self.failures):
            title = self.impossible if text in self.yaml_errors else self.failure_title(nodes)
            self.block(title, for_user(text), C.COLOR_ERROR)
        self.diffs, self.messages, self.failures, self.items, self.self_naming = {}, {}, {}, {}, set()

    @property
    def impossible(self) -> str:
        """The line above the reason why the playbook cannot do what the user typed."""
        return f"{self.playbook}: not possible"

    def describe_failure(self, result: Any) -> str:
        """Return the text for a failed task; for a YAML file that cannot be parsed, with its name and the line."""
        text = reason(result.result)
        error = self.find_yaml_error() if YAML_ERROR in text else ""
        if error:
            self.yaml_errors.add(error)
        return error or text

    def find_yaml_error(self) -> str:
        """Return the YAML error in the variables of any host, or an empty string."""
        return strip_controls(find_yaml_error(self.play)) if self.play else ""

    def show_position(self) -> None:
        """Show the position of a YAML error outside of any task, of which Ansible has shown the message."""
        if not self.ended and not self.interrupted and (error := self.find_yaml_error()):
            self.block(self.impossible, error.partition(f": {YAML_ERROR}")[0], C.COLOR_ERROR)

    def failure_title(self, nodes: Iterable[str]) -> str:
        """Return the line above the reason for a failure: where the task failed, if that is relevant."""
        if self.task.action.rpartition(".")[2] in COMMAND_CHECKS:
            return self.impossible
        title = " ".join(part for part in ("FAILED", role_of(self.task), "on", self.names(nodes)) if part)
        return f"{title}: {self.task.get_name().rpartition(' : ')[2]}"

    def catch_interruption(self) -> None:
        """Record Ctrl-C before Ansible handles it, and ensure that Ansible ends."""
        handler, pid = signal.getsignal(signal.SIGINT), os.getpid()
        if handler == signal.SIG_IGN:  # a script started this process in the background
            return

        def interrupt(number: int, frame: Any) -> None:
            if not self.interrupted and os.getpid() == pid:  # a worker has this handler when it starts
                threading.Thread(target=interrupt_if_stuck, args=(pid,), daemon=True).start()
            self.interrupted = True
            try:
                if callable(handler):
                    handler(number, frame)
            except ValueError as error:  # Ansible asks a worker that has just ended whether it is alive
                raise KeyboardInterrupt from error

        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, interrupt)

    def end_stage(self) -> None:
        """Show the line for the role that is ending."""
        stage = self.stage
        if not self.with_roles or not stage.role or not stage.ok or stage.failed:
            return  # failures are shown above
        if stage.changed:
            changed = "would change" if self.check else "changed"
            parts = f"({stage.parts})" if stage.parts else ""
            state, color = f"{changed} {parts} {self.location(stage.changed)}", C.COLOR_CHANGED
        elif stage.role in self.shown_roles:
            return
        else:
            state, color = "ok", C.COLOR_OK
        self.shown_roles.add(stage.role)
        self.say(
            f"  {stage.role:<18}{' '.join(state.split()):<40}  {format_duration(time.monotonic() - stage.started):>12}",
            color,
        )

    def show_remaining(self) -> None:
        """Show all remaining messages, and mention a run that continues without this command."""
        self.end_task()
        self.show_position()
        if self.interrupted and self.state_file and not sys.stdout.isatty():
            return  # ./muster shows the state on stderr: Ctrl-C may have ended the reader of stdout, such as tee
        if self.unfinished_run or self.interrupted:
            self.say(self.describe_state())
        if self.interrupted and typed_command():
            print(MARK, file=sys.stderr, flush=True)

    def describe_state(self) -> str:
        """Describe the state in which an interruption leaves the run, or the work of the playbook."""
        if self.unfinished_run:
            run_id, commands = self.unfinished_run
            state = "keeps running on its nodes" if self.watched else "was starting and may be running"
            return f"run {run_id} {state}.\n{commands}"
        return for_user(describe_interruption(self.playbook, self.launched))

    def write_state(self) -> None:
        """Write the state for ./muster, because a signal may end this process before it can show the state."""
        state = f"{self.describe_state()}\n" if self.state_file else ""
        if state != self.written_state:
            with contextlib.suppress(OSError), open(self.state_file, "w", encoding="utf-8") as stream:
                stream.write(state)
            self.written_state = state

    def begin_task(self, task: Any) -> None:
        self.end_task()
        role = outer_role_of(task)
        parts = parts_of(task, role)
        if (role, parts) != (self.stage.role, self.stage.parts):
            self.end_stage()
            self.stage = RoleProgress(role, time.monotonic(), parts)
        self.task = task
        if task.action not in REPORT_OWN_PROGRESS + PAUSES:
            signal.signal(signal.SIGALRM, self.show_running_task)
            signal.setitimer(signal.ITIMER_REAL, self.get_option("slow_task_seconds"))

    def show_running_task(self, _number: int, _frame: object) -> None:
        """Show the name of a task that is taking long. Uses a timer in this process, which worker processes do not
        have.
        """
        with contextlib.suppress(RuntimeError):  # it may interrupt a line that is being written
            self.say(f"  {self.stage.role or self.playbook:<18}{self.task.get_name().rpartition(' : ')[2]} ...")

    def record_success(self, result: Any) -> None:
        if result.task.action.rpartition(".")[2] not in PREPARATORY:
            self.stage.ok[result.host.get_name()] = None
        if result.result.get("changed"):
            self.stage.changed[result.host.get_name()] = None
        if result.task.action in MESSAGES and not (result.task.loop and "results" in result.result):
            node, message = result.host.get_name(), self.message_of(result)
            text = for_user(strip_name(node, message))
            self.messages.setdefault(text, []).append(node)
            if strip_name(node, message) != message:
                self.self_naming.add(text)

    def remember_run(self, result: Any) -> None:
        """Remember a run that continues unwatched."""
        if result.result.get("run_commands"):
            self.launched = True
            self.unfinished_run = (str(result.result["run_id"]), str(result.result["run_commands"]))
        elif result.task.action == WATCH and not result.result.get(
            "lost"
        ):  # otherwise the other nodes are queried next
            self.unfinished_run = None
        self.write_state()

    def message_of(self, result: Any) -> str:
        """Return the message of a task whose purpose is to show it."""
        if "msg" not in result.result:  # a task that shows a variable
            self._clean_results(result.result, result.task.action)
            return str(self._dump_results(result.result)).strip()
        message = result.result["msg"]
        return strip_controls(
            "\n".join(str(line) for line in message) if isinstance(message, list) else str(message).strip()
        )

    def record_failure(self, result: Any, failure_reason: str) -> None:
        """Remember why a task failed on a node until all nodes have finished."""
        node = result.host.get_name()
        texts = list(dict.fromkeys(self.items.pop(node, []))) or [failure_reason]
        block = rescue_block(result.task, "block")
        if block:
            self.rescued[block, node] = "\n".join(texts)
            return
        block_reason = self.rescued.pop((rescue_block(result.task, "rescue"), node), "")
        if block_reason and block_reason not in texts[0]:
            texts.insert(0, block_reason)
        self.stage.failed[node] = None
        self.failures.setdefault("\n".join(strip_name(node, text) for text in texts), []).append(node)

    def _handle_warnings(self, res: Any) -> None:
        warnings = res.get("warnings") or []
        if warnings and not self._display.verbosity and all(HARMLESS_WARNING in str(warning) for warning in warnings):
            res.pop("warnings")
        super()._handle_warnings(res)

    # --- what Ansible calls

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.playbook = os.path.splitext(os.path.basename(playbook._file_name))[0]  # also named with -v
        self.header_shown, self.all_nodes, self.shown_roles, self.started = False, {}, set(), time.monotonic()
        self.write_state()
        if self._display.verbosity:
            super().v2_playbook_on_start(playbook)

    @unless_verbose
    def v2_playbook_on_play_start(self, play: Any) -> None:
        self.play = play
        # Ansible forks a process for each task and node. Existing objects live until the end: without this, each
        # process's garbage collector would visit them and so copy their memory (a tenth of the time that site.yml
        # takes).
        gc.freeze()
        self.end_task()
        self.end_stage()
        self.unfinished_run, self.watched = None, False  # its commands were shown if it was detached on purpose
        self.stage = RoleProgress("", time.monotonic())
        self.check = bool(play.check_mode)
        self.query = is_query(play)
        self.with_roles = lists_roles(play.get_ds() or {}) and not self.query
        inventory = play.get_variable_manager()._inventory
        self.nodes = [host.get_name() for host in inventory.get_hosts(play.hosts)]
        if self.with_roles:
            self.all_nodes.update(dict.fromkeys(self.nodes))
        if self.with_roles and not self.header_shown:
            self.header_shown = True
            number = f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'}"
            mode = ", dry run (--check)" if self.check else ""
            self.say(f"{self.playbook}: {number}{mode}: {join_names(self.nodes)}")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self.watched = self.watched or task.action == WATCH
        self.write_state()
        if task is self.task and task.action in META:
            return  # a meta task starts again for each node
        if self._display.verbosity:
            self.task = task
            super().v2_playbook_on_task_start(task, is_conditional)
        else:
            self.begin_task(task)

    @unless_verbose
    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.begin_task(task)

    @unless_verbose
    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        pass

    def v2_runner_on_ok(self, result: Any) -> None:
        self.remember_run(result)
        if self._display.verbosity:
            super().v2_runner_on_ok(result)
        else:
            self._handle_warnings(result.result)
            self.record_success(result)

    @unless_verbose
    def v2_runner_on_skipped(self, result: Any) -> None:
        self._handle_warnings(result.result)

    @unless_verbose
    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._handle_warnings(result.result)
        if not ignore_errors:
            self.record_failure(result, self.describe_failure(result))

    @unless_verbose
    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._handle_warnings(result.result)
        if not result.task.ignore_unreachable:
            self.record_failure(result, describe_unreachable(result.host.get_name(), result.result))

    @unless_verbose
    def v2_runner_item_on_ok(self, result: Any) -> None:
        if result.task.action in MESSAGES:
            self.record_success(result)

    @unless_verbose
    def v2_runner_item_on_failed(self, result: Any) -> None:
        self.items.setdefault(result.host.get_name(), []).append(reason(result.result))

    @unless_verbose
    def v2_runner_item_on_skipped(self, result: Any) -> None:
        pass

    @unless_verbose
    def v2_runner_retry(self, result: Any) -> None:
        pass

    @unless_verbose
    def v2_runner_on_async_poll(self, result: Any) -> None:
        pass

    @unless_verbose
    def v2_runner_on_async_ok(self, result: Any) -> None:
        pass

    @unless_verbose
    def v2_runner_on_async_failed(self, result: Any) -> None:
        pass

    @unless_verbose
    def v2_playbook_on_include(self, included_file: Any) -> None:
        pass

    @unless_verbose
    def v2_playbook_on_notify(self, handler: Any, host: Any) -> None:
        pass

    @unless_verbose
    def v2_playbook_on_no_hosts_matched(self) -> None:
        self.unmatched = True

    @unless_verbose
    def v2_playbook_on_no_hosts_remaining(self) -> None:
        pass

    @unless_verbose
    def v2_on_file_diff(self, result: Any) -> None:
        diffs = result.result.get("diff") or []
        for diff in diffs if isinstance(diffs, list) else [diffs]:
            lines = (program(diff) or self._get_diff(diff) or "").rstrip().splitlines()
            longest = self.get_option("max_diff_lines")
            if len(lines) > longest:
                lines = [*lines[:longest], f"... and {len(lines) - longest} more lines; -v shows them"]
            if lines:
                text = "\n".join(f"    {line}" for line in lines)
                self.diffs.setdefault(text, []).append(result.host.get_name())

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self.unfinished_run, self.ended = None, True
        if self._display.verbosity:
            super().v2_playbook_on_stats(stats)
        else:
            with discard_unread_output():
                self.show_summary(stats)

    def show_summary(self, stats: Any) -> None:
        """Show the last line."""
        self.end_task()
        self.end_stage()
        if self.unmatched and not stats.processed:  # otherwise the other plays have explained what to do
            self.say(f"{self.playbook}: no host in the inventory matches; check --limit and the group", C.COLOR_SKIP)
        if not self.header_shown:
            return
        sums = {host: stats.summarize(host) for host in stats.processed}
        nodes = [host for host in self.all_nodes if host in sums]  # in play order, not in order of completion
        failed = [host for host in nodes if sums[host]["failures"] or sums[host]["unreachable"]]
        changed = [host for host in nodes if sums[host]["changed"]]
        duration = format_duration(time.monotonic() - self.started)
        if failed:
            text, color = f"failed on {join_names(failed)}; rerun with -v for Ansible's full output", C.COLOR_ERROR
        elif changed:
            action = "would be changed" if self.check else "changed"
            text, color = f"{len(changed)} of {len(nodes)} nodes {action}", C.COLOR_CHANGED
        else:
            text, color = f"{len(nodes)} of {len(nodes)} nodes ok, nothing to change", C.COLOR_OK
        self.say(f"{self.playbook}: {text}   {duration}", color)
