# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""launch_args as a list or as text reach the job unchanged."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from ansible import context
from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import (
    parse_arguments,
    parse_environment,
)

ODD = [
    "007",
    "0x1F",
    "1_0",
    "1:30",
    "0b11",
    "+5",
    "-0",
    "2.50",
    "1.",
    "1_0.5",
    ".5",
    "1.0e+3",
    "2020-01-01",
    "190:20:30.15",
]
PLAIN_ONES = ["3", "0.1", "-7", "1e-3", "12345678901234567890"]
MOMENT = "2020-01-01 10:00:00"


def written_in(directory: Path, text: str, name: str = "job.yml") -> list[str]:
    """Return the arguments in this file of variables."""
    path = directory / name
    path.write_text(text)
    loader = DataLoader()
    return parse_arguments(loader.load_from_file(str(path))["launch_args"], loader)


@pytest.mark.parametrize("word", [*ODD, *PLAIN_ONES])
@pytest.mark.parametrize(
    "form",
    [
        "launch_args: [--value, {}]\n",
        "launch_args: [--value, {}, last]\n",
        "launch_args:\n  - --value\n  - {}  # as it is\n  - last\n",
        '{{"other": 1,\n "launch_args": ["--value",\n {} ]}}\n',
    ],
)
def test_argument_in_a_file_is_passed_verbatim(tmp_path: Path, word: str, form: str) -> None:
    assert written_in(tmp_path, form.format(word))[1] == word


def test_timestamp_is_passed_verbatim(tmp_path: Path) -> None:
    assert written_in(tmp_path, f"launch_args:\n- {MOMENT}\n") == [MOMENT]


def test_single_number_is_passed_verbatim(tmp_path: Path) -> None:
    assert written_in(tmp_path, "launch_args: 007\n") == ["007"]


def test_json_numbers_are_passed_verbatim_unless_ambiguous(tmp_path: Path) -> None:
    assert written_in(tmp_path, '{"launch_args": ["--lr", 1e-3, "--n", 3, "x", 0.10]}', "job.json") == [
        *("--lr", "1e-3", "--n", "3", "x", "0.10")
    ]
    with pytest.raises(ValueError, match="has 0.1 without quotes"):
        written_in(tmp_path, '{"launch_args": ["--lr", 0.1, "--n", 0.10]}', "job.json")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{launch_args: [--n, 007, 1:30, 0.10]}", ["--n", "007", "1:30", "0.10"]),
        ('{"launch_args": ["--n", 3, 0.10, 1e-3]}', ["--n", "3", "0.10", "1e-3"]),
    ],
)
def test_extra_vars_are_passed_verbatim(monkeypatch: pytest.MonkeyPatch, text: str, arguments: list[str]) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": ("nnodes=2", '{"other": [1, 0x1F]}', text)}))
    loader = DataLoader()
    origin = Origin(description="<CLI option '-e'>")  # as Ansible marks values that come from its command line
    assert parse_arguments(loader.load(origin.tag(text))["launch_args"], loader) == arguments


@pytest.mark.parametrize("word", ["yes", "on", "true", "False", "null", "~", "", "{a: 1}", "[1]", "[]"])
def test_argument_that_is_not_text_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(ValueError, match="where a string is needed: put the argument in quotes"):
        written_in(tmp_path, f"launch_args:\n- --value\n- {word}\n")


def test_number_is_refused_if_its_original_text_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 7 without quotes"):
        written_in(tmp_path, "launch_args: [!!int '007']\n")


def test_aliased_number_is_passed_as_written_at_its_anchor(tmp_path: Path) -> None:
    assert written_in(tmp_path, "n: &n 0x1F\nlaunch_args: [a, *n]\n") == ["a", "0x1F"]


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        written_in(tmp_path, "launch_args: [yes, null]\n")
    assert str(caught.value).count("put the argument in quotes") == 2


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("--resume --epochs 1", ["--resume", "--epochs", "1"]),
        (
            "--lr=0.1\n--name 'a b' --note \"it's\" $HOME * a,b #c",
            ["--lr=0.1", "--name", "a b", "--note", "it's", "$HOME", "*", "a,b", "#c"],
        ),
        ("", []),
        ("  ", []),
        ("''", [""]),
        ("--fast", ["--fast"]),
        ("007", ["007"]),
    ],
)
def test_text_is_split_as_in_a_shell_but_without_expansion(text: str, arguments: list[str]) -> None:
    assert parse_arguments(text, DataLoader()) == arguments


@given(st.lists(st.text()))
def test_quoted_arguments_survive_the_round_trip(arguments: list[str]) -> None:
    text = shlex.join(arguments)
    if not text.lstrip().startswith("["):
        assert parse_arguments(text, DataLoader()) == arguments


@pytest.mark.parametrize("text", ["--name 'a b", 'say "x', "ends with \\"])
def test_unclosed_quote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be split into arguments: No .*Close the quote") as caught:
        parse_arguments(text, DataLoader())
    assert ascii(text) in str(caught.value)
    error = AnsibleActionFail(f"not possible: {caught.value}")
    error.__cause__ = caught.value
    assert error.message == str(error._message), "Ansible appends each cause that the message does not end with"


@pytest.mark.parametrize("text", ['["--epochs", "3"]', " [--epochs, 3]"])
def test_list_written_as_text_is_refused_showing_the_correct_form(text: str) -> None:
    with pytest.raises(ValueError, match="looks like a list") as caught:
        parse_arguments(text, DataLoader())
    assert """-e '{"launch_args": ["--epochs", "3"]}'""" in str(caught.value)


def environment_in(directory: Path, text: str) -> dict[str, object]:
    """Return the environment in this file."""
    (directory / "job.yml").write_text(text)
    loader = DataLoader()
    return parse_environment(loader.load_from_file(str(directory / "job.yml"))["launch_environment"], loader)


def test_environment_is_passed_verbatim(tmp_path: Path) -> None:
    assert environment_in(tmp_path, "launch_environment: {A: 007, B: 0x1F, C: text, D: 1:30}\n") == {
        **{"A": "007", "B": "0x1F", "C": "text", "D": "1:30"}
    }


def test_refused_environment_value_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="launch_environment has A without quotes") as caught:
        environment_in(tmp_path, "launch_environment: {A: !!int '4711', B: x}\n")
    assert "4711" not in str(caught.value)
