# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preconditions of a sequence of launches, checked before the first launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.utils.context_objects import CLIArgs

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import (
    find_obstacle,
    sequence,
)
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"become_ask_pass": True},
            "-K (--ask-become-pass) prompts at each launch, .*: use --become-password-file FILE",
        ),
        ({"ask_pass": True}, "-k (--ask-pass) prompts .* or --connection-password-file FILE"),
        ({"ask_vault_pass": True}, "-J (--ask-vault-pass) prompts .*: use --vault-password-file FILE"),
        ({"vault_ids": ["a@b.txt", "x@prompt"]}, "--vault-id x@prompt prompts .*: use --vault-id NAME@FILE"),
        ({"vault_ids": ["prompt"]}, "--vault-id prompt prompts"),
        ({"step": True}, "--step prompts"),
        (
            {"args": ["preflight.yml", "/a/fit.yml"]},
            "2 playbooks were passed together (preflight.yml, fit.yml), but this one runs other playbooks",
        ),
    ],
)
def test_options_that_prompt_and_several_playbooks_are_refused(options: dict[str, Any], message: str) -> None:
    for part in message.split(".*"):
        assert part in find_obstacle({"args": ["fit.yml"], **options}), part


def test_password_files_are_accepted() -> None:
    options = {
        "args": ["fit.yml"],
        "become_ask_pass": False,
        "become_password_file": "p",
        "vault_ids": ["x@prompt.txt"],
    }
    assert find_obstacle(options) == ""


def test_name_in_use_by_another_command_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ansible_runner")
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"args": ("muster.training.fit",)}))
    still = pytest.raises(UserError, match="another command is still running fit: .* -e run_id=NAME")
    with sequence(tmp_path / "fit"), sequence(tmp_path / "other"), still, sequence(tmp_path / "fit"):
        pass
    with sequence(tmp_path / "fit") as launches:
        assert launches.directory == tmp_path / "fit" / "launches"


def test_refused_sequence_creates_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"args": ("preflight.yml", "fit.yml")}))
    with pytest.raises(UserError, match="2 playbooks were passed together"), sequence(tmp_path / "fit"):
        pass
    assert not (tmp_path / "fit").exists()
