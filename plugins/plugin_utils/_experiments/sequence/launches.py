# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts playbooks one after another, each in its own process with ansible-runner, and reads their output.

A failed playbook does not end the sequence. On Ctrl-C, the current playbook is ended, and then the run that it launched
is stopped on all nodes. The same happens if Ansible itself is killed.

Private to this collection, controller only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed, beside
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import STARTED_BY
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping

INSTALL = "pip install 'ansible-runner>=2.4,<3'"
STOP_PATIENCE = 300.0  # seconds: even with nodes that do not answer, a stop ends long before
NOT_PLAIN = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")  # YAML folds or refuses them


class NoRunner(Exception):
    """ansible-runner is not installed. The text says what to do."""


class Ended(NamedTuple):
    """How a playbook ended: exit code, failures reported by its tasks, duration, and whether its time was up."""

    code: int
    failures: list[str]
    seconds: float
    late: bool


def words_of(typed: Sequence[str], playbooks: Sequence[str], name: str) -> list[str]:
    """The words of the typed command, with its playbook replaced by another one of this collection."""
    return [beside(str(playbooks[0]), name) if word == playbooks[0] else str(word) for word in typed]


def quoted(value: Any) -> str:
    """A value as JSON that is also YAML: characters that JSON escapes as surrogates, such as emojis, stay as is."""
    return NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def as_it_is(value: Any) -> str:
    """A value as YAML in which Ansible takes each text literally, even one that looks like a template."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(str(key))}: {as_it_is(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_it_is, value)) + "]"
    text = quoted(value)
    return f"!unsafe {text}" if isinstance(value, str) and "{" in value else text


class Launches:
    """Runs playbooks with the same inventory and variables as the typed command."""

    def __init__(self, typed: Sequence[str], playbooks: Sequence[str], directory: Path) -> None:
        """typed: the command's words after `ansible-playbook`; directory: receives the output of each playbook."""
        try:
            import ansible_runner  # large, and no other playbook needs it
        except ImportError as problem:
            raise NoRunner(f"this needs the Python package ansible-runner on this machine: {INSTALL}") from problem
        self.runner = ansible_runner
        self.typed, self.playbooks, self.directory = typed, playbooks, directory
        self.heard, self.parent = False, os.getppid()
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Launches:
        """Handle the SIGINT or SIGTERM that Ansible passes on to the task's process; Ansible waits for its end."""
        self.before = {number: signal.signal(number, self.interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *problem: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self.heard = True

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was typed, or the Ansible process that started this is gone, so that nobody waits."""
        return self.heard or os.getppid() != self.parent

    def play(self, name: str, log: str, variables: Mapping[str, Any], patience: float | None = None) -> Ended:
        """Run a playbook of this collection to its end, or for patience seconds. log: name of its log, without .log."""
        start = time.monotonic()
        failures: list[str] = []

        def heard(event: dict[str, Any]) -> None:
            if event.get("event") == "runner_on_failed":
                told = mapping(mapping(event.get("event_data")).get("res"))
                if told.get("msg") and not mapping(event.get("event_data")).get("ignore_errors"):
                    failures.append(clean(told["msg"], 1000))

        over: Callable[[], bool] = lambda: patience is not None and time.monotonic() - start > patience  # noqa: E731
        asked = name != "stop"  # stop runs after an interruption, and must not be cancelled by it
        meant = {**variables, STARTED_BY: str(self.playbooks[0])}
        if "run_id" in meant:  # launch_run_id takes precedence if both are typed
            meant["launch_run_id"] = meant["run_id"]
        place = Path(tempfile.mkdtemp(prefix="muster-"))  # accessible to this user only
        try:
            given = place / "variables.yml"  # not in argv, which all users can read: it may hold secrets
            given.write_text(as_it_is(meant) + "\n", encoding="utf-8")
            words = [*words_of(self.typed, self.playbooks, name), "-e", f"@{given}"]
            self.directory.mkdir(parents=True, exist_ok=True)
            output, _errors, code = self.runner.run_command(
                executable_cmd=shutil.which("ansible-playbook", path=os.path.dirname(os.path.abspath(sys.argv[0])))
                or "ansible-playbook",
                cmdline_args=words,
                private_data_dir=str(place),
                host_cwd=os.getcwd(),
                envvars={"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
                event_handler=heard,
                cancel_callback=lambda: over() or (asked and self.interrupted),
                quiet=True,
            )
            (self.directory / f"{log}.log").write_text(output, encoding="utf-8", errors="replace")
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return Ended(code, failures, time.monotonic() - start, over())

    def launch(self, run_id: str, variables: Mapping[str, Any], patience: float) -> Ended:
        """Launch a run and wait for its end; stop it on all nodes if it takes too long or is interrupted."""
        ended = self.play("launch", run_id, {**variables, "run_id": run_id}, patience)
        if ended.late or self.interrupted:
            self.stop(run_id)
        return ended

    def stop(self, run_id: str) -> Ended:
        """Stop a run on all nodes, and warn if that fails or takes too long."""
        ended = self.play("stop", f"{run_id}-stop", {"run_id": run_id}, STOP_PATIENCE)
        if ended.code or ended.late:
            Display().warning(
                f"{run_id} may still be running: stopping it {'took too long' if ended.late else 'failed'}, as "
                f"{self.directory / f'{run_id}-stop.log'} says. "
                + as_typed(f"Try again: ansible-playbook stop.yml -e run_id={run_id}")
            )
        return ended
