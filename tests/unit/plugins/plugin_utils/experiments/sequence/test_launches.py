# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks started in sequence: command lines, output and termination."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import (
    AnsiblePlaybookRunner,
    RunnerMissingError,
    format_unsafe,
    replace_playbook,
)

# Stands in for ansible-playbook: prints its arguments, and waits if requested
PROGRAM = """#!/bin/sh
echo "$@"
for word; do case "$word" in @*) given=$(cat "${word#@}"); echo "$given";; esac; done
case "$* $given" in *training.launch*wait*) echo "$$" > "$0.pid"; exec sleep 600;; *launch*) exit 2;; esac
"""


@pytest.fixture
def launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnsiblePlaybookRunner:
    program = tmp_path / "ansible-playbook"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    typed = ["muster.training.fit", "-i", "machines.yml", "-e", "run_id=mine"]
    return AnsiblePlaybookRunner(typed, ["muster.training.fit"], tmp_path / "launches")


def test_command_line_is_reused_with_another_playbook(tmp_path: Path) -> None:
    assert replace_playbook(["-i", "x", "muster.training.fit", "-e", "a=b"], ["muster.training.fit"], "launch") == [
        *("-i", "x", "muster.training.launch", "-e", "a=b")
    ]
    (tmp_path / "launch.yml").touch()
    assert replace_playbook([f"{tmp_path}/fit.yml"], [f"{tmp_path}/fit.yml"], "launch") == [f"{tmp_path}/launch.yml"]


def test_failed_playbook_stops_no_run_and_its_output_is_kept(launches: AnsiblePlaybookRunner) -> None:
    ended = launches.launch("fit-b8", {"launch_args": ["8"]}, 60)
    assert ended.exit_code == 2 and not ended.timed_out
    output = (launches.directory / "fit-b8.log").read_text().splitlines()
    assert output[0].startswith("muster.training.launch -i machines.yml -e run_id=mine -e @")
    assert yaml_load(output[1]) == {
        "launch_args": ["8"],
        "run_id": "fit-b8",
        "launch_run_id": "fit-b8",  # may have been given on the command line, and would take effect
        "__muster_started_by": "muster.training.fit",
    }
    assert not (launches.directory / "fit-b8-stop.log").exists()


@pytest.mark.parametrize(("previous", "expected"), [("", "default"), ("minimal", "minimal")])
def test_playbook_that_ansible_runner_started_starts_others(
    launches: AnsiblePlaybookRunner, monkeypatch: pytest.MonkeyPatch, previous: str, expected: str
) -> None:
    """The callback of ansible-runner must not wrap itself, which would end the playbook with a traceback."""
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "awx_display")
    monkeypatch.setenv("ORIGINAL_STDOUT_CALLBACK", previous)
    Path(sys.argv[0]).write_text('#!/bin/sh\necho "$ANSIBLE_STDOUT_CALLBACK wraps $ORIGINAL_STDOUT_CALLBACK"\n')
    launches.launch("fit-b8", {}, 60)
    assert (launches.directory / "fit-b8.log").read_text() == f"awx_display wraps {expected}\n"


def test_variables_are_not_in_argv_and_not_templated(launches: AnsiblePlaybookRunner) -> None:
    launches.launch("fit-b8", {"launch_environment": {"TOKEN": "s3cret"}, "launch_args": ["{{ 6 * 7 }}", "é"]}, 60)
    arguments, variables = (launches.directory / "fit-b8.log").read_text().splitlines()[:2]
    assert "s3cret" not in arguments and '"launch_args": [!unsafe "{{ 6 * 7 }}", "é"]' in variables
    assert not Path(arguments.rpartition("@")[2]).exists(), "it goes with the playbook"


@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs"])),
        lambda children: (
            st.lists(children) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children)
        ),
    )
)
@example("{\U0001f600}")
def test_any_value_is_passed_unchanged(value: object) -> None:
    assert DataLoader().load(format_unsafe({"": "{", "value": value})) == {"": "{", "value": value}


def test_playbook_over_its_time_limit_is_ended_and_its_run_stopped(launches: AnsiblePlaybookRunner) -> None:
    ended = launches.launch("wait-b8", {}, 1.0)
    assert ended.timed_out
    assert "muster.training.stop" in (launches.directory / "wait-b8-stop.log").read_text()


def test_interrupt_ends_playbook_and_stops_its_run(launches: AnsiblePlaybookRunner) -> None:
    before = signal.getsignal(signal.SIGINT)
    with launches:
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        ended = launches.launch("wait-b8", {}, 600)
    assert launches.interrupted and not ended.timed_out
    assert "muster.training.stop" in (launches.directory / "wait-b8-stop.log").read_text()
    assert signal.getsignal(signal.SIGINT) is before


def test_stop_has_a_time_limit_and_ignores_interrupts(
    launches: AnsiblePlaybookRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[bool] = []
    warned: list[str] = []

    def run_command(cancel_callback: Callable[[], bool], **_more: object) -> tuple[str, str, int]:
        cancelled.append(cancel_callback())
        return "", "", 0

    monkeypatch.setattr(launches.runner, "run_command", run_command)
    monkeypatch.setattr(Display, "warning", lambda _self, text: warned.append(text))
    launches.signaled = True
    launches.stop("fit-b8")
    assert not warned
    monkeypatch.setattr(f"{AnsiblePlaybookRunner.__module__}.STOP_TIMEOUT", -1.0)
    launches.stop("fit-b8")
    assert cancelled == [False, True]
    assert (
        "fit-b8 may still be running: stopping it took too long" in warned[0]
        and "stop.yml -e run_id=fit-b8" in warned[0]
    )


def test_exit_of_the_parent_ansible_process_is_treated_as_an_interrupt(
    launches: AnsiblePlaybookRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not launches.interrupted
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert launches.interrupted


def test_missing_ansible_runner_error_names_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ansible_runner", None)
    with pytest.raises(RunnerMissingError, match="pip install 'ansible-runner>=2.4,<3'"):
        AnsiblePlaybookRunner([], [], tmp_path)
