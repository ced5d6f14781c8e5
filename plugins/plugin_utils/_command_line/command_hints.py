# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adapt commands in messages to what this user must type."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible import constants, context

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import typed_variables

COLLECTION = "muster.training"
COMMAND = re.compile(r"ansible-playbook (\w+)\.yml((?: -e (?:run_id|rank|fetch|nodes)=[\w.-]+)*)")
MUSTER = "muster"  # the command of a project, beside its playbooks
# Playbooks with a command of ./muster; roles/init/files/muster.py has the same, with - for _
MUSTER_COMMANDS = re.findall(
    r"\w+",
    """
    benchmark bucket_move checkpoints cost docker fetch fit image launch logs ping preflight provision rehearse report
    runs shell site stage_data status stop sweep teardown
    """,
)
# Variables that have an option, or are a plain argument ("")
MUSTER_OPTIONS = {"run_id": "", "nodes": "", "rank": "--rank ", "fetch": "--fetch"}
NAMED_RUN = ("status", "logs", "fetch", "report", "stop")  # commands whose argument is the name of a run


def adapt_commands(text: str, arguments: Mapping[str, Any] | None = None) -> str:
    """Adapt each `ansible-playbook NAME.yml` in a text to the path of the current playbook and the inventory.

    In a project, which has a file muster beside its playbooks, it becomes `./muster NAME`.

    site.yml also gets the options that select the code: without them, it would remove that code's requirements.

    arguments: Ansible's CLIARGS, by default of this process.
    """
    cli_args = context.CLIARGS if arguments is None else arguments
    playbooks = cli_args.get("args") or ()
    if not playbooks:
        return text
    inventory = "".join(f" -i {shlex.quote(source)}" for source in inventory_sources(cli_args))
    code_arguments = "" if "code_source=" in text else code_options(cli_args)

    project = os.path.dirname(str(playbooks[0]))
    in_project = os.path.isfile(os.path.join(project, MUSTER))

    def command(match: re.Match[str]) -> str:
        options = match[2]
        if in_project and match[1] in MUSTER_COMMANDS:
            path = os.path.join(project or ".", MUSTER)
            command_line = f"{shlex.quote(path)} {match[1].replace('_', '-')}{inventory}"
            options = short_options(match[1], options)
        else:
            command_line = f"ansible-playbook {shlex.quote(sibling_playbook(str(playbooks[0]), match[1]))}{inventory}"
        return command_line + (code_arguments if match[1] == "site" else "") + options

    return COMMAND.sub(command, text)


def short_options(command: str, options: str) -> str:
    """Return options such as " -e run_id=first -e rank=0" as a command of ./muster has them: " first --rank 0"."""

    def option(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        has_short_form = {
            "run_id": command in NAMED_RUN,
            "nodes": command == "shell",
            "rank": command == "logs",
            "fetch": command in ("logs", "report") and value == "true",
        }[name]
        if not has_short_form:
            return match[0]
        return f" {MUSTER_OPTIONS[name]}{'' if name == 'fetch' else value}"

    return re.sub(r" -e (\w+)=([\w.-]+)", option, options)


def code_options(cli_args: Mapping[str, Any]) -> str:
    """Return the typed options that select the code: -e @FILE, such as a job file, and code_source."""
    extra_vars = [str(text) for text in cli_args.get("extra_vars") or ()]
    file_options = [f" -e {shlex.quote('@' + shorten_path(text[1:]))}" for text in extra_vars if text.startswith("@")]
    source = typed_variables(extra_vars).get("code_source")
    return "".join([*file_options, f" -e code_source={shlex.quote(str(source))}" if source else ""])


def sibling_playbook(playbook: str, name: str) -> str:
    """Return the path of a playbook next to this one if it exists there, else its full name."""
    if playbook.startswith(f"{COLLECTION}."):
        return f"{COLLECTION}.{name}"
    sibling = os.path.join(os.path.dirname(playbook), f"{name}.yml")
    return sibling if os.path.exists(sibling) else f"{COLLECTION}.{name}"


def inventory_sources(cli_args: Mapping[str, Any]) -> list[str]:
    """Return the inventory sources typed after -i, with their paths as short as possible."""
    sources = [str(source) for source in cli_args.get("inventory") or ()]
    if sources == [str(source) for source in constants.DEFAULT_HOST_LIST]:  # from ansible.cfg, or none at all
        return []
    return [source if "," in source else shorten_path(source) for source in sources]


def shorten_path(path: str) -> str:
    """Return the path relative to the current directory if it is below, else unchanged."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
