# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in messages are those that this user has to type."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from ansible import constants

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import (
    MUSTER_COMMANDS,
    adapt_commands,
)
from tests.unit.typed import CHECKOUT

STOP = "stop it (ansible-playbook stop.yml -e run_id=first), or wait"


@pytest.mark.parametrize(
    ("playbook", "inventory", "typed"),
    [
        ("playbooks/launch.yml", ["machines.yml"], "ansible-playbook playbooks/stop.yml -i machines.yml"),
        ("playbooks/launch.yml", ["my machines", "b,"], "ansible-playbook playbooks/stop.yml -i 'my machines' -i b,"),
        ("playbooks/launch.yml", ["/etc/machines"], "ansible-playbook playbooks/stop.yml -i /etc/machines"),
        ("playbooks/launch.yml", constants.DEFAULT_HOST_LIST, "ansible-playbook playbooks/stop.yml"),
        ("muster.training.launch", ["machines.yml"], "ansible-playbook muster.training.stop -i machines.yml"),
        ("mine/train.yml", ["machines.yml"], "ansible-playbook muster.training.stop -i machines.yml"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "ansible-playbook stop.yml"),
    ],
)
def test_suggested_command_keeps_playbook_directory_and_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playbook: str, inventory: list[str], typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "playbooks").mkdir()
    for name in ("playbooks/stop.yml", "stop.yml"):
        (tmp_path / name).touch()
    absolute = [one if one.startswith("/") or "," in one else str(tmp_path / one) for one in inventory]
    called = {"args": (playbook,), "inventory": absolute}
    assert adapt_commands(STOP, called) == f"stop it ({typed} -e run_id=first), or wait"


def test_text_stays_unchanged_without_a_command_or_known_playbook(tmp_path: Path) -> None:
    called = {"args": ("launch.yml",), "inventory": ("machines.yml",)}
    assert (
        adapt_commands("see stop.yml, or ansible-playbook of yours", called)
        == "see stop.yml, or ansible-playbook of yours"
    )
    assert adapt_commands(STOP, {}) == STOP


@pytest.mark.parametrize(
    ("typed", "more"),
    [
        ((), ""),
        (("nnodes=2",), ""),
        (("@job.yml", "nnodes=2"), " -e @job.yml"),
        (("code_source=~/project launch_script=train.py",), " -e code_source='~/project'"),
        (('{"code_source": "/me/my project"}',), " -e code_source='/me/my project'"),
    ],
)
def test_suggested_command_repeats_the_options_that_bring_code(
    typed: tuple[str, ...], more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    called = {"args": ("muster.training.launch",), "inventory": constants.DEFAULT_HOST_LIST, "extra_vars": typed}
    assert adapt_commands("ansible-playbook site.yml --tags code", called) == (
        f"ansible-playbook muster.training.site{more} --tags code"
    )
    assert adapt_commands(STOP, called) == STOP.replace("stop.yml", "muster.training.stop")
    own = "ansible-playbook site.yml -e code_source=DIRECTORY"
    assert adapt_commands(own, called) == own.replace("site.yml", "muster.training.site")


@pytest.mark.parametrize(
    ("playbook", "inventory", "message", "typed"),
    [
        ("launch.yml", constants.DEFAULT_HOST_LIST, "logs.yml -e run_id=a-1 -e rank=3", "./muster logs a-1 --rank 3"),
        ("launch.yml", ["lab.yml"], "stop.yml -e run_id=a-1", "./muster stop -i lab.yml a-1"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "report.yml -e run_id=a.b", "./muster report a.b"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "logs.yml -e fetch=true", "./muster logs --fetch"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "launch.yml -e run_id=a", "./muster launch -e run_id=a"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "stage_data.yml -e x=1", "./muster stage-data -e x=1"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "mine.yml", "ansible-playbook muster.training.mine"),
        ("work/launch.yml", constants.DEFAULT_HOST_LIST, "ping.yml", "work/muster ping"),
    ],
)
def test_project_with_the_short_command_gets_it_in_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playbook: str, inventory: list[str], message: str, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / playbook).parent.mkdir(exist_ok=True)
    (tmp_path / playbook).with_name("muster").touch()
    arguments = {"args": (playbook,), "inventory": inventory}
    assert adapt_commands(f"try ansible-playbook {message}; then", arguments) == f"try {typed}; then"


def test_short_commands_are_those_of_the_project_file() -> None:
    commands = runpy.run_path(str(CHECKOUT / "roles" / "init" / "files" / "muster.py"))["COMMANDS"]
    assert {command.replace("-", "_"): playbook for command, (playbook, *_rest) in commands.items()} == {
        name: name for name in MUSTER_COMMANDS
    }
