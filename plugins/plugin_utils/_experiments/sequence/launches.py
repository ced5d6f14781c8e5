# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run playbooks one after another, each in its own process, using ansible-runner, and read their output.

A failed playbook does not end the sequence. On Ctrl-C, the current playbook is ended, and then the run that it launched
is stopped on all nodes. The same happens if Ansible itself is killed.
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

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import (
    adapt_commands,
    sibling_playbook,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import STARTED_BY
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping

INSTALL_COMMAND = "pip install 'ansible-runner>=2.4,<3'"
STOP_TIMEOUT = 300.0  # seconds; even with unreachable nodes, a stop finishes long before this
CALLBACK, RUNNER_CALLBACK = "ANSIBLE_STDOUT_CALLBACK", "awx_display"
NOT_PLAIN = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")  # YAML folds or rejects them


class RunnerMissingError(Exception):
    """ansible-runner is not installed. The message explains how to install it."""


class PlaybookResult(NamedTuple):
    """The outcome of a playbook: exit code, failures reported by its tasks, duration, and whether it timed out."""

    exit_code: int
    failures: list[str]
    seconds: float
    timed_out: bool


def replace_playbook(argv: Sequence[str], playbooks: Sequence[str], name: str) -> list[str]:
    """Return the command's arguments, with its playbook replaced by another playbook from this collection."""
    return [sibling_playbook(str(playbooks[0]), name) if arg == playbooks[0] else str(arg) for arg in argv]


def quote_yaml(value: Any) -> str:
    """Return a value as JSON that is valid YAML: what JSON escapes as surrogates, such as emojis, is not escaped."""
    return NOT_PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def format_unsafe(value: Any) -> str:
    """Return a value as YAML in which Ansible interprets every text literally, even if it looks like a template."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote_yaml(str(key))}: {format_unsafe(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(format_unsafe, value)) + "]"
    text = quote_yaml(value)
    return f"!unsafe {text}" if isinstance(value, str) and "{" in value else text


def previous_callback(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with a playbook's callback if this playbook was started by ansible-runner or AWX.

    The callback of ansible-runner wraps the callback that was set before, which may not be itself.
    """
    if environment.get(CALLBACK) != RUNNER_CALLBACK:
        return {}
    return {CALLBACK: environment.get("ORIGINAL_STDOUT_CALLBACK") or "default"}


class AnsiblePlaybookRunner:
    """Runs playbooks with the current command's inventory and variables."""

    def __init__(self, argv: Sequence[str], playbooks: Sequence[str], directory: Path) -> None:
        """Initialize. argv: arguments of ansible-playbook; directory: where each playbook's output is written."""
        try:
            import ansible_runner  # a large dependency that no other playbook needs
        except ImportError as error:
            raise RunnerMissingError(
                f"this needs the Python package ansible-runner on this machine: {INSTALL_COMMAND}"
            ) from error
        self.runner = ansible_runner
        self.argv, self.playbooks, self.directory = argv, playbooks, directory
        self.signaled, self.parent_pid = False, os.getppid()
        self.previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> AnsiblePlaybookRunner:
        """Handle SIGINT and SIGTERM, which Ansible passes on to the task's process before waiting for its end."""
        self.previous_handlers = {
            number: signal.signal(number, self.interrupt) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *problem: object) -> None:
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self.signaled = True

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed, or the Ansible process that started this one has ended and no one is waiting."""
        return self.signaled or os.getppid() != self.parent_pid

    def play(self, name: str, log: str, variables: Mapping[str, Any], timeout: float | None = None) -> PlaybookResult:
        """Run a playbook from this collection to its end, or for timeout seconds. log: its log's name, without .log."""
        start = time.monotonic()
        failures: list[str] = []

        def on_event(event: dict[str, Any]) -> None:
            if event.get("event") == "runner_on_failed":
                task_result = to_mapping(to_mapping(event.get("event_data")).get("res"))
                if task_result.get("msg") and not to_mapping(event.get("event_data")).get("ignore_errors"):
                    failures.append(clean_text(task_result["msg"], 1000))

        has_timed_out: Callable[[], bool] = lambda: timeout is not None and time.monotonic() - start > timeout  # noqa: E731
        is_cancellable = name != "stop"  # stop.yml runs after an interruption, which must not cancel it
        launch_variables = {**variables, STARTED_BY: str(self.playbooks[0])}
        if "run_id" in launch_variables:  # launch_run_id takes precedence if both are given
            launch_variables["launch_run_id"] = launch_variables["run_id"]
        private_directory = Path(tempfile.mkdtemp(prefix="muster-"))  # accessible to this user only
        try:
            # keep secrets out of argv, which all users can read
            variables_file = private_directory / "variables.yml"
            variables_file.write_text(format_unsafe(launch_variables) + "\n", encoding="utf-8")
            argv = [*replace_playbook(self.argv, self.playbooks, name), "-e", f"@{variables_file}"]
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            output, _errors, exit_code = self.runner.run_command(
                executable_cmd=shutil.which("ansible-playbook", path=os.path.dirname(os.path.abspath(sys.argv[0])))
                or "ansible-playbook",
                cmdline_args=argv,
                private_data_dir=str(private_directory),
                host_cwd=os.getcwd(),
                envvars={"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", **previous_callback(os.environ)},
                event_handler=on_event,
                cancel_callback=lambda: has_timed_out() or (is_cancellable and self.interrupted),
                quiet=True,
            )
            (self.directory / f"{log}.log").write_text(output, encoding="utf-8", errors="replace")
        finally:
            shutil.rmtree(private_directory, ignore_errors=True)
        return PlaybookResult(exit_code, failures, time.monotonic() - start, has_timed_out())

    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult:
        """Launch a run and wait for it to end; stop it on all nodes if it times out or is interrupted."""
        result = self.play("launch", run_id, {**variables, "run_id": run_id}, timeout)
        if result.timed_out or self.interrupted:
            self.stop(run_id)
        return result

    def stop(self, run_id: str) -> PlaybookResult:
        """Stop a run on all nodes, and warn if this fails or times out."""
        result = self.play("stop", f"{run_id}-stop", {"run_id": run_id}, STOP_TIMEOUT)
        if result.exit_code or result.timed_out:
            Display().warning(
                f"{run_id} may still be running: stopping it {'took too long' if result.timed_out else 'failed'}; see "
                f"{self.directory / f'{run_id}-stop.log'}. "
                + adapt_commands(f"Try again: ansible-playbook stop.yml -e run_id={run_id}")
            )
        return result
