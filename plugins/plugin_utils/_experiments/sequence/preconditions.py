# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a sequence of launches, unless something would keep it from finishing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import context

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import (
    AnsiblePlaybookRunner,
    RunnerMissingError,
)
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

LOCK = ".lock"  # file in the record's directory, locked while the sequence is running
# Options that make Ansible prompt, by their names in CLIARGS: how each is written, and what to use instead
PROMPT_OPTIONS = {
    "become_ask_pass": ("-K (--ask-become-pass)", "--become-password-file FILE"),
    "ask_pass": ("-k (--ask-pass)", "SSH keys, or --connection-password-file FILE"),
    "ask_vault_pass": ("-J (--ask-vault-pass)", "--vault-password-file FILE"),
    "step": ("--step", "the command without it"),
}
# instead of a file in --vault-id, with or without a name: x@prompt
PROMPT_SOURCES = ("prompt", "prompt_ask_vault_pass")


def find_obstacle(cli_args: Mapping[str, Any]) -> str:
    """Return why launches cannot be run one after another, or an empty string. cli_args: Ansible's CLIARGS."""
    playbooks = [os.path.basename(str(playbook)) for playbook in cli_args.get("args") or ()]
    if len(playbooks) > 1:
        return (
            f"{len(playbooks)} playbooks were passed together ({', '.join(playbooks)}), but this one runs other "
            "playbooks with the same options, so it must be run alone. Run them one after another"
        )
    for name, (option, instead) in PROMPT_OPTIONS.items():
        if cli_args.get(name):
            return prompt_message(option, instead)
    for vault_id in cli_args.get("vault_ids") or ():
        if (str(vault_id).partition("@")[2] or str(vault_id)) in PROMPT_SOURCES:
            return prompt_message(f"--vault-id {vault_id}", "--vault-id NAME@FILE, or --vault-password-file FILE")
    return ""


def prompt_message(option: str, replacement: str) -> str:
    return f"{option} prompts at each launch, when there may be nobody to answer: use {replacement}"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a record's directory while its sequence is running. Raise UserError if another process holds the lock."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(
            (
                f"{directory} cannot be written: {error.strerror}; set launch_runs_directory to a directory that you "
                "can write to"
            ),
            result={"changed": False},
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UserError(
            f"another command is still running {directory.name}: wait for it to end, or choose another name with "
            "-e run_id=NAME",
            result={"changed": False},
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def sequence(directory: Path) -> Iterator[AnsiblePlaybookRunner]:
    """Context manager that yields a sequence's AnsiblePlaybookRunner. Raise UserError.

    directory: that of its record, which also receives the output of each launch.
    """
    obstacle = find_obstacle(context.CLIARGS)
    if obstacle:
        raise UserError(obstacle, result={"changed": False})
    try:
        runner = AnsiblePlaybookRunner(sys.argv[1:], context.CLIARGS.get("args") or (), directory / "launches")
    except RunnerMissingError as error:
        raise UserError(str(error), result={"changed": False}) from error
    with locked(directory), runner:
        yield runner
