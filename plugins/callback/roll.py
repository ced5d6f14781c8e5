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
  - A task is shown only if it fails, or while it takes longer than O(lasting). Nodes that failed with the same message
    share one block, and lists of more than eight nodes are shortened.
  - Output of this collection's modules, such as a plan, a table or the output of a job, is shown unchanged.
  - With C(-v), C(ANSIBLE_STDOUT_CALLBACK=default), or without C(stdout_callback) in F(ansible.cfg), Ansible's default
    output is shown instead.
options:
  lasting:
    description: Seconds after which a task that is still running is shown.
    type: float
    default: 10
    ini:
      - section: callback_roll
        key: lasting
    env:
      - name: MUSTER_ROLL_LASTING
  longest_diff:
    description: Maximum number of lines per file that C(--diff) shows. The remaining lines are only counted.
    type: int
    default: 20
    ini:
      - section: callback_roll
        key: longest_diff
    env:
      - name: MUSTER_ROLL_LONGEST_DIFF
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
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import trouble_of

SHOWN_NODES = 8
TAIL = 10  # lines of output shown from a failed program
WATCH = "muster.training.training_watch"
THEIR_OWN_WORDS = tuple(  # they report their own progress
    f"muster.training.{name}"
    for name in (
        *("training_watch", "long_command", "torch_proof", "deepspeed_proof", "flash_attention", "python_layer"),
        *("fit", "sweep", "rehearse"),
    )
)
ASKING = ("pause", "ansible.builtin.pause")
CONTROL = {number: None for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}
LOOKING = (  # a role that is switched off has nothing else
    *("include_tasks", "include_role", "import_tasks", "import_role", "validate_argument_spec", "set_fact"),
    "known_variables",
)
# Ansible's prefix for the message of a plugin that refuses something.
AROUND = re.compile(r"\ATask failed: (?:[^\n]*?The (?:filter|lookup|test) plugin 'muster\.training\.\w+' failed: )?")
MESSAGES = ("debug", "ansible.builtin.debug", "ansible.legacy.debug")
META = ("meta", "ansible.builtin.meta", "ansible.legacy.meta")
PROGRAMS = (".py", ".sh")
OF_NO_USE = "Module remote_tmp "  # a harmless warning from root's first task on each machine


def names(nodes: Iterable[str]) -> str:
    """The names of some nodes on one line, shortened if there are many."""
    found = list(dict.fromkeys(nodes))
    if len(found) <= SHOWN_NODES:
        return " ".join(found)
    return f"{' '.join(found[: SHOWN_NODES - 1])} and {len(found) - SHOWN_NODES + 1} more"


def duration(seconds: float) -> str:
    """Seconds in human-readable form."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def plain(text: str) -> str:
    """A text without terminal control sequences: it may come from a node or a job."""
    return text.translate(CONTROL)


def without_name(node: str, text: str) -> str:
    """A text without the name of its node, which is shown before it anyway."""
    return text.removeprefix(f"{node}: ")


def program(diff: Mapping[str, Any]) -> str:
    """The name and length of the program that a diff is about, "" if it is about something else."""
    heads = (str(diff.get(name) or "").removesuffix(" (content)") for name in ("before_header", "after_header"))
    name = next((head for head in heads if head.endswith(PROGRAMS)), "")
    number = len(str(diff.get("after") or "").splitlines())
    return f"{name}: a program, {number} line{'' if number == 1 else 's'}" if name and number else ""


def last_lines(text: str) -> str:
    """The end of a program's output."""
    lines = text.rstrip().splitlines()
    return "\n".join([*(["..."] if len(lines) > TAIL else []), *lines[-TAIL:]])


def reason(result: Mapping[str, Any]) -> str:
    """What is shown for a failed result: its message and the output of the failed program, once."""
    # censored: from a task with no_log; reason: from a file that cannot be included, in ansible-core 2.19
    told = str(result.get("msg") or result.get("censored") or result.get("reason") or "").strip()
    parts = [AROUND.sub("", told)]
    for key in ("module_stderr", "stderr", "module_stdout", "stdout"):
        said = str(result.get(key) or "").strip()
        if said and not any(said in part for part in parts):
            parts.append(last_lines(said))
    return plain("\n".join(part for part in parts if part)) or "failed without a message"


def without_way(node: str, result: Mapping[str, Any]) -> str:
    """What is shown for a node that does not answer: why, if known, and what to do."""
    trouble = trouble_of(node, reason(result))
    return plain(f"{trouble.found}\nneeded: {trouble.needed}\ndo:     {trouble.todo}")


def with_rescue(task: Any, part: str) -> str:
    """The uuid of the block with a rescue that contains a task in this part (block or rescue), "" without one."""
    child, parent = task, getattr(task, "_parent", None)
    while parent is not None:
        # a result's task is a copy
        if getattr(parent, "rescue", None) and child._uuid in [one._uuid for one in getattr(parent, part)]:
            return str(parent._uuid)
        child, parent = parent, getattr(parent, "_parent", None)
    return ""


def role_of(task: Any) -> str:
    """The name of a task's role without its collection, "" if it has none."""
    role = getattr(task, "_role", None)
    return str(role.get_name()).rpartition(".")[2] if role else ""


def lists_roles(play: Mapping[str, Any]) -> bool:
    """Whether a play, as written, is a list of roles; one that imports a single role speaks through its modules."""
    tasks = [name.rpartition(".")[2] for task in play.get("tasks") or [] for name in task]
    return bool(play.get("roles")) or tasks.count("import_role") > 1


@dataclass
class Stage:
    """A role, from its first task onwards."""

    role: str
    started: float
    ok: dict[str, None] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)


def unless_verbose(method: Callable[..., None]) -> Callable[..., None]:
    """Let Ansible's own callback answer if -v asks for its full output."""

    @functools.wraps(method)
    def either(self: CallbackModule, *args: Any, **kwargs: Any) -> None:
        if self._display.verbosity:
            getattr(super(CallbackModule, self), method.__name__)(*args, **kwargs)
        else:
            method(self, *args, **kwargs)

    return either


class CallbackModule(Default):
    """Show one line per role, and each failure once."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "muster.training.roll"

    def __init__(self) -> None:
        super().__init__()
        self.playbook = ""
        self.started = time.monotonic()
        self.check = False
        self.with_roles = False  # a play that lists roles; others speak through their modules
        self.headed = False
        self.nodes: list[str] = []  # of the play
        self.all_nodes: dict[str, None] = {}  # of all plays with roles
        self.stage = Stage("", self.started)
        self.task: Any = None
        self.failures: dict[str, list[str]] = {}  # of this task: text to nodes
        self.messages: dict[str, list[str]] = {}
        self.named: set[str] = set()  # texts in which the node named itself
        self.diffs: dict[str, list[str]] = {}
        self.items: dict[str, list[str]] = {}  # node to the reasons why its items failed
        self.rescued: dict[tuple[str, str], str] = {}  # block and node to the reason why its rescue runs there
        self.seen: set[str] = set()  # roles that have had a line
        self.left_behind: tuple[str, str] | None = None  # a run that has not ended, and its commands
        self.watched = False  # that run
        if isinstance(sys.stdout, io.TextIOWrapper):  # else a pipe to a file or tee shows a run only after its end
            sys.stdout.reconfigure(line_buffering=True)
        # A worker does not inherit the timer's handler: Ansible refuses tasks with a time limit if it finds one.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL))
        atexit.register(self.end)  # even if nothing else is called, as after Ctrl-C

    # --- what is shown

    def say(self, text: str, color: str | None = None) -> None:
        self._display.display(text, color=color)

    def block(self, title: str, text: str, color: str) -> None:
        """Show a title and, below it, a text of several lines."""
        self.say("\n".join([title, *(f"    {line}".rstrip() for line in text.splitlines())]), color)

    def where(self, nodes: Iterable[str]) -> str:
        """Where something happened: nodes in inventory order, "" if on all of several."""
        found = set(nodes)
        everywhere = len(found) > 1 and len(found) == len(self.nodes)
        return "" if everywhere else self.names(found)

    def names(self, nodes: Iterable[str]) -> str:
        """Some of the play's nodes in its order."""
        return names(sorted(nodes, key=self.place))

    def place(self, node: str) -> int:
        """The position of a node in its play; the last for one that another node added."""
        return self.nodes.index(node) if node in self.nodes else len(self.nodes)

    def in_order(self, said: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
        """Texts with the nodes they came from, in play order rather than in order of answers."""
        return sorted(said.items(), key=lambda one: min(self.place(node) for node in one[1]))

    def end_task(self) -> None:
        """Show the messages of the task that ends here, grouping nodes with the same text."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for text, nodes in self.in_order(self.diffs):
            self.say(f"  {self.names(nodes)}:\n{text}")
        different = len({tuple(nodes) for nodes in self.messages.values()}) > 1
        for text, nodes in self.in_order(self.messages):
            where = self.names(nodes) if different else self.where(nodes) if text in self.named else ""
            self.say(f"{where}: {text}" if where else text)
        for text, nodes in self.in_order(self.failures):
            title = " ".join(part for part in ("FAILED", role_of(self.task), "on", self.names(nodes)) if part)
            self.block(f"{title}: {self.task.get_name().rpartition(' : ')[2]}", text, C.COLOR_ERROR)
        self.diffs, self.messages, self.failures, self.items, self.named = {}, {}, {}, {}, set()

    def end_stage(self) -> None:
        """Show the line of the role that ends here."""
        stage = self.stage
        if not self.with_roles or not stage.role or not stage.ok or stage.failed:
            return  # failures are shown above
        if stage.changed:
            changed = "would change" if self.check else "changed"
            state, color = f"{changed} {self.where(stage.changed)}", C.COLOR_CHANGED
        elif stage.role in self.seen:
            return
        else:
            state, color = "ok", C.COLOR_OK
        self.seen.add(stage.role)
        self.say(f"  {stage.role:<18}{state.rstrip():<40}  {duration(time.monotonic() - stage.started):>12}", color)

    def end(self) -> None:
        """Show what remains, including a run that continues without this command."""
        self.end_task()
        if self.left_behind:
            run_id, commands = self.left_behind
            state = "keeps running on its nodes" if self.watched else "was starting and may be running"
            self.say(f"run {run_id} {state}.\n{commands}")

    def begin(self, task: Any) -> None:
        self.end_task()
        if role_of(task) != self.stage.role:
            self.end_stage()
            self.stage = Stage(role_of(task), time.monotonic())
        self.task = task
        if task.action not in THEIR_OWN_WORDS + ASKING:
            signal.signal(signal.SIGALRM, self.still)
            signal.setitimer(signal.ITIMER_REAL, self.get_option("lasting"))

    def still(self, _number: int, _frame: object) -> None:
        """Name a task that takes long. Uses a timer in this process, which its workers do not have."""
        with contextlib.suppress(RuntimeError):  # it may interrupt a line being written
            self.say(f"  {self.stage.role or self.playbook:<18}{self.task.get_name().rpartition(' : ')[2]} ...")

    def done(self, result: Any) -> None:
        if result.task.action.rpartition(".")[2] not in LOOKING:
            self.stage.ok[result.host.get_name()] = None
        if result.result.get("changed"):
            self.stage.changed[result.host.get_name()] = None
        if result.task.action in MESSAGES and not (result.task.loop and "results" in result.result):
            node, said = result.host.get_name(), self.message(result)
            text = without_name(node, said)
            self.messages.setdefault(text, []).append(node)
            if text != said:
                self.named.add(text)

    def keep_in_mind(self, result: Any) -> None:
        """Remember a run that continues without anybody watching its end."""
        if result.result.get("goes_on"):
            self.left_behind = (str(result.result["run_id"]), str(result.result["goes_on"]))
        elif result.task.action == WATCH and not result.result.get("lost"):  # otherwise the other nodes are asked next
            self.left_behind = None

    def message(self, result: Any) -> str:
        """The message of a task whose purpose is to show one."""
        if "msg" not in result.result:  # of a variable
            self._clean_results(result.result, result.task.action)
            return str(self._dump_results(result.result)).strip()
        said = result.result["msg"]
        return plain("\n".join(str(line) for line in said) if isinstance(said, list) else str(said).strip())

    def fail(self, result: Any, why: str) -> None:
        """Remember why a task failed on a node, until all have answered."""
        node = result.host.get_name()
        texts = list(dict.fromkeys(self.items.pop(node, []))) or [why]
        block = with_rescue(result.task, "block")
        if block:
            self.rescued[block, node] = "\n".join(texts)
            return
        before = self.rescued.pop((with_rescue(result.task, "rescue"), node), "")
        if before and before not in texts[0]:
            texts.insert(0, before)
        self.stage.failed[node] = None
        self.failures.setdefault("\n".join(without_name(node, text) for text in texts), []).append(node)

    def _handle_warnings(self, res: Any) -> None:
        said = res.get("warnings") or []
        if said and not self._display.verbosity and all(OF_NO_USE in str(one) for one in said):
            res.pop("warnings")
        super()._handle_warnings(res)

    # --- what Ansible calls

    @unless_verbose
    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.headed, self.all_nodes, self.seen, self.started = False, {}, set(), time.monotonic()
        self.playbook = os.path.splitext(os.path.basename(playbook._file_name))[0]

    @unless_verbose
    def v2_playbook_on_play_start(self, play: Any) -> None:
        # Ansible forks a process for each task and node. What is there by now stays to the end: without this, the
        # garbage collector of each process would go through it, and copy its memory (a tenth of a whole site.yml).
        gc.freeze()
        self.end_task()
        self.end_stage()
        self.left_behind, self.watched = None, False  # for a run left on purpose, this has been shown
        self.stage = Stage("", time.monotonic())
        self.check = bool(play.check_mode)
        self.with_roles = lists_roles(play.get_ds() or {})
        inventory = play.get_variable_manager()._inventory
        self.nodes = [host.get_name() for host in inventory.get_hosts(play.hosts)]
        if self.with_roles:
            self.all_nodes.update(dict.fromkeys(self.nodes))
        if self.with_roles and not self.headed:
            self.headed = True
            number = f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'}"
            mode = ", dry run (--check)" if self.check else ""
            self.say(f"{self.playbook}: {number}{mode}: {names(self.nodes)}")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self.watched = self.watched or task.action == WATCH
        if task is self.task and task.action in META:
            return  # it begins anew for each node
        if self._display.verbosity:
            self.task = task
            super().v2_playbook_on_task_start(task, is_conditional)
        else:
            self.begin(task)

    @unless_verbose
    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.begin(task)

    @unless_verbose
    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        pass

    def v2_runner_on_ok(self, result: Any) -> None:
        self.keep_in_mind(result)
        if self._display.verbosity:
            super().v2_runner_on_ok(result)
        else:
            self._handle_warnings(result.result)
            self.done(result)

    @unless_verbose
    def v2_runner_on_skipped(self, result: Any) -> None:
        self._handle_warnings(result.result)

    @unless_verbose
    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._handle_warnings(result.result)
        if not ignore_errors:
            self.fail(result, reason(result.result))

    @unless_verbose
    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._handle_warnings(result.result)
        if not result.task.ignore_unreachable:
            self.fail(result, without_way(result.host.get_name(), result.result))

    @unless_verbose
    def v2_runner_item_on_ok(self, result: Any) -> None:
        if result.task.action in MESSAGES:
            self.done(result)

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
        self.say(f"{self.playbook}: no host in the inventory matches; check --limit and the group", C.COLOR_SKIP)

    @unless_verbose
    def v2_playbook_on_no_hosts_remaining(self) -> None:
        pass

    @unless_verbose
    def v2_on_file_diff(self, result: Any) -> None:
        found = result.result.get("diff") or []
        for diff in found if isinstance(found, list) else [found]:
            lines = (program(diff) or self._get_diff(diff) or "").rstrip().splitlines()
            longest = self.get_option("longest_diff")
            if len(lines) > longest:
                lines = [*lines[:longest], f"... and {len(lines) - longest} more lines; -v shows them"]
            if lines:
                text = "\n".join(f"    {line}" for line in lines)
                self.diffs.setdefault(text, []).append(result.host.get_name())

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self.left_behind = None
        if self._display.verbosity:
            super().v2_playbook_on_stats(stats)
        else:
            self.sum_up(stats)

    def sum_up(self, stats: Any) -> None:
        """Show the last line."""
        self.end_task()
        self.end_stage()
        if not self.headed:
            return
        sums = {host: stats.summarize(host) for host in stats.processed}
        nodes = [host for host in self.all_nodes if host in sums]  # in the order of the plays, not of the answers
        failed = [host for host in nodes if sums[host]["failures"] or sums[host]["unreachable"]]
        changed = [host for host in nodes if sums[host]["changed"]]
        took = duration(time.monotonic() - self.started)
        if failed:
            text, color = f"failed on {names(failed)}; rerun with -v for Ansible's full output", C.COLOR_ERROR
        elif changed:
            what = "would be changed" if self.check else "changed"
            text, color = f"{len(changed)} of {len(nodes)} nodes {what}", C.COLOR_CHANGED
        else:
            text, color = f"{len(nodes)} of {len(nodes)} nodes ok, nothing to change", C.COLOR_OK
        self.say(f"{self.playbook}: {text}   {took}", color)
