# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text after -e that is not part of a variable is refused, with a corrected form."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars_lint import find_stray_extra_vars
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import parse_arguments
from tests.unit.typed import CHECKOUT, give_collection, typed


@pytest.mark.parametrize(
    ("text", "lost", "form"),
    [
        ("launch_args=--resume --epochs 1", "'--epochs 1'", "-e \"launch_args='--resume --epochs 1'\""),
        ("launch_args=--lr=0.1 --epochs=3", "'--epochs=3'", "-e \"launch_args='--lr=0.1 --epochs=3'\""),
        ("launch_args=model=gpt lr=0.1", "'lr=0.1'", "-e \"launch_args='model=gpt lr=0.1'\""),
        ("nnodes=2 launch_args=--a b", "'b'", "-e \"launch_args='--a b'\""),
        ("launch_args=--note 'a b' $HOME", "\"'a b' $HOME\"", """-e '{"launch_args": "--note '"'"'a b'"'"' $HOME"}'"""),
        ("run_id=my run", "'run'", "-e \"run_id='my run'\""),
        ("directory=mein projekt ü", "'projekt ü'", "-e \"directory='mein projekt ü'\""),
        ("job.yml", "'job.yml'", "-e @job.yml"),
        ("--epochs 1", "'--epochs 1'", "-e \"launch_args='--epochs 1'\""),
        ("--epochs=1", "'--epochs=1'", "-e \"launch_args='--epochs=1'\""),
        ("a\\=b", "'a\\\\=b'", "NAME=VALUE"),
    ],
)
def test_unused_arguments_are_named_with_the_correct_form(text: str, lost: str, form: str) -> None:
    (output,) = find_stray_extra_vars([text])
    assert output.startswith(f"-e {shlex.quote(text)}: {lost} does not belong to a variable")
    assert form in output


@pytest.mark.parametrize("arguments", [["--resume", "--epochs", "1"], ["--note", "it's $5", 'a"b'], ["lr=0.1", "x=2"]])
def test_suggested_form_passes_all_arguments(arguments: list[str]) -> None:
    (output,) = find_stray_extra_vars([f"launch_args={shlex.join(arguments)}"])
    form = output.partition("inside the shell's quotes: ")[2].rpartition(". Give each")[0]
    (option, text) = shlex.split(form)
    loader = DataLoader()
    variables = loader.load(text) if text.startswith("{") else parse_kv(text)
    assert (option, find_stray_extra_vars([text])) == ("-e", [])
    assert parse_arguments(variables["launch_args"], loader) == arguments


@pytest.mark.parametrize(
    "text",
    [
        *(
            "nnodes=2",
            "nnodes=2 run_id=a",
            "launch_args='--a b'",
            "launch_args='--a b' nnodes=2",
            'launch_args="--a b"',
        ),
        *("@job file.yml", '{"launch_args": ["--a", "b"]}', "[1, 2]", "", "launch_args=--fast", "a={{ b + c }}", "a="),
    ],
)
def test_arguments_that_affect_a_variable_are_accepted(text: str) -> None:
    assert find_stray_extra_vars([text]) == []


NEEDED = {"stage_data": "stage_data_bucket=b", "checkpoints": "checkpoints_bucket=b"}
PLAYBOOKS = sorted(path.stem for path in (CHECKOUT / "playbooks").glob("*.yml"))


# The same call rejects variables that have no effect: tests/unit/playbooks/test_no_effect.py tests each playbook.
@pytest.mark.parametrize(
    "playbook", [name if name == "launch" else pytest.param(name, marks=pytest.mark.thorough) for name in PLAYBOOKS]
)
def test_each_playbook_refuses_unused_arguments_before_contacting_nodes(tmp_path: Path, playbook: str) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        "training: {hosts: {a: {node_address: 127.0.4.1, ansible_host: 127.0.0.1, ansible_port: 1}}}\n"
    )
    arguments = ["-i", "machines.yml", "-e", NEEDED.get(playbook, "nnodes=1"), "-e", "launch_args=--resume --epochs 1"]
    completed = typed(tmp_path, ["ansible-playbook", f"muster.training.{playbook}", *arguments])
    assert completed.returncode == 2, completed.stdout
    assert "'--epochs 1' does not belong to a variable" in completed.stdout, completed.stdout
    assert "-e \"launch_args='--resume --epochs 1'\"" in completed.stdout
    assert "unreachable=0" in completed.stdout and "unreachable=1" not in completed.stdout  # no node was queried
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["collections", "machines.yml"]
