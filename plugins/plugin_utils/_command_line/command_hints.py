# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adapt commands in messages to the form that the user must type."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible import constants, context

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import typed_variables
from ansible_collections.muster.training.plugins.plugin_utils._command_line.muster_command import (
    path_as_typed,
    to_muster_commands,
    typed_command,
)

COLLECTION = "muster.training"
ENVIRONMENT_VARIABLES = ("python_env_name", "python_env_directory")
"""Variables that select the Python environment, which site.yml changes and a launch uses."""
COMMAND = re.compile(r"ansible-playbook (\w+)\.yml")


def adapt_commands(text: str, arguments: Mapping[str, Any] | None = None) -> str:
    """Adapt each `ansible-playbook NAME.yml` in a text to the current playbook's path and inventory.

    For a user of ./muster, each becomes a command of ./muster. site.yml also gets the options that select the code and
    its environment: without them, it would remove that code's requirements, or change another environment.

    arguments: Ansible's CLIARGS, by default those of this process.
    """
    cli_args = context.CLIARGS if arguments is None else arguments
    if typed_command():
        return to_muster_commands(
            text, typed_command(), "" if "code_source=" in text else code_arguments_typed(cli_args)
        )
    playbooks = cli_args.get("args") or ()
    if not playbooks:
        return text
    inventory = "".join(f" -i {shlex.quote(source)}" for source in inventory_sources(cli_args))
    code_arguments = "" if "code_source=" in text else code_options(cli_args)

    def command(match: re.Match[str]) -> str:
        command_line = f"ansible-playbook {shlex.quote(sibling_playbook(str(playbooks[0]), match[1]))}{inventory}"
        return command_line + code_arguments if match[1] == "site" else command_line

    return COMMAND.sub(command, text)


def code_options(cli_args: Mapping[str, Any]) -> str:
    """Return the typed options that select the code and its environment: job files, other -e @FILE, and variables."""
    extra_vars = [str(text) for text in cli_args.get("extra_vars") or ()]
    file_options = [f" -e {shlex.quote('@' + shorten_path(text[1:]))}" for text in extra_vars if text.startswith("@")]
    variables = typed_variables(extra_vars)
    source = variables.get("code_source")
    source_option = f" -e code_source={shlex.quote(str(source))}" if source else ""
    return "".join([*file_options, source_option, environment_options(variables)])


def environment_options(variables: Mapping[str, Any]) -> str:
    """Return options for those typed variables that select the Python environment."""
    return "".join(
        f" -e {name}={shlex.quote(str(variables[name]))}" for name in ENVIRONMENT_VARIABLES if variables.get(name)
    )


def code_arguments_typed(cli_args: Mapping[str, Any]) -> str:
    """Return the result of code_options() as arguments for ./muster."""
    extra_vars = [str(text) for text in cli_args.get("extra_vars") or ()]
    files = [path_as_typed(text[1:]) for text in extra_vars if text.startswith("@")]
    variables = typed_variables(extra_vars)
    source = variables.get("code_source")
    option = f" -e code_source={shlex.quote(path_as_typed(str(source)))}" if source else ""
    return "".join(f" {shlex.quote(file)}" for file in files) + option + environment_options(variables)


def sibling_playbook(playbook: str, name: str) -> str:
    """Return the path of a playbook next to the current one if it exists there, otherwise its full name."""
    if playbook.startswith(f"{COLLECTION}."):
        return f"{COLLECTION}.{name}"
    sibling = os.path.join(os.path.dirname(playbook), f"{name}.yml")
    return sibling if os.path.exists(sibling) else f"{COLLECTION}.{name}"


def inventory_sources(cli_args: Mapping[str, Any]) -> list[str]:
    """Return the inventory sources typed after -i, with paths that are as short as possible."""
    sources = [str(source) for source in cli_args.get("inventory") or ()]
    # the default: the one in ansible.cfg, or none at all
    if sources == [str(source) for source in constants.DEFAULT_HOST_LIST]:
        return []
    return [source if "," in source else shorten_path(source) for source in sources]


def shorten_path(path: str) -> str:
    """Return the path relative to the current directory if it is inside that directory, otherwise unchanged."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
