# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Format the commands in messages as ./muster users type them."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND_VARIABLE = "MUSTER_COMMAND"
"""Environment variable with the command that the user typed, such as ./muster; unset if they typed ansible-playbook."""
DIRECTORY_VARIABLE = "MUSTER_DIRECTORY"
"""Environment variable with the directory in which the command was typed; playbooks run in the project's directory."""
PROGRAM = Path(__file__).resolve().parents[3] / "roles" / "init" / "files" / "muster.py"
VARIABLE = r"(\w+)=([^\s'\"();]*[^\s'\"();.,:])"
FILE = r"@([^\s'\"();]*[^\s'\"();.,:])|'@([^']+)'"
OPTION = re.compile(rf" -e (?:{VARIABLE}|'(\{{[^']*\}})'|{FILE})")


def typed_command() -> str:
    """Return the command that the user typed, such as ./muster, or an empty string."""
    return os.environ.get(COMMAND_VARIABLE, "")


def path_as_typed(path: str) -> str:
    """Return a path as the user would type it in the directory where they typed their command."""
    directory = os.environ.get(DIRECTORY_VARIABLE) or os.getcwd()
    relative = os.path.relpath(path, directory)
    return path if relative.startswith("../..") else relative


def to_muster_commands(text: str, program: str, site_arguments: str = "") -> str:
    """Replace each playbook in a text, along with the options after it, with a ./muster command.

    program: ./muster, or its path; site_arguments: further arguments for each `site`.
    """

    def command(match: re.Match[str]) -> str:
        name, options, args_variable = commands()[match[1]]
        variables: dict[str, Any] = {}
        files = ""
        for option, value, document, file, quoted_file in OPTION.findall(match[2]):
            if path := file or quoted_file:
                mark = "" if path.endswith((".yml", ".yaml")) else "-e @"
                files += f" {mark}{quote(path_as_typed(path))}"
                continue
            try:
                variables.update(json.loads(document) if document else {option: value})
            except ValueError:  # text in a job that looks like a command
                return match[0]
        arguments = option_arguments(variables, options, args_variable)
        return f"{program} {name}{site_arguments if name == 'site' and not files else ''}{files}{arguments}"

    return playbook_pattern().sub(command, text)


def option_arguments(
    variables: Mapping[str, Any], options: Mapping[str, str], args_variable: str = "launch_args"
) -> str:
    """Format variables as arguments of a command that has these options, each preceded by a space.

    args_variable: the variable with the arguments of the script.
    """
    by_variable = {variable: option for option, variable in reversed(list(options.items()))}
    rest = dict(variables)
    script = rest.pop("launch_script", "")
    script_args = rest.pop(args_variable, []) if script else []
    arguments = []
    for name, value in rest.items():
        if f"{name}={value}".lower() in by_variable:
            arguments.append(by_variable[f"{name}={value}".lower()])
        elif name in by_variable:
            # a word without an option: "" is the first, " " the second
            arguments += [by_variable[name], str(value)] if by_variable[name].strip() else [str(value)]
        else:
            is_plain = isinstance(value, (str, int))
            arguments += ["-e", f"{name}={value}" if is_plain else json.dumps({name: value})]
    arguments += [str(script), *map(str, script_args)] if script else []
    return "".join(f" {quote(argument)}" for argument in arguments)


def quote(argument: str) -> str:
    """Quote an argument for a shell, except $PWD; quote placeholders such as 'A,B' and {batch_size} only if needed."""
    return (
        argument
        if argument == "$PWD" or re.fullmatch(r"[\w@%+=:,./~{}-]+", argument) and not argument.startswith("~")
        else shlex.quote(argument)
    )


@functools.cache
def commands() -> dict[str, tuple[str, dict[str, str], str]]:
    """Return each ./muster command by playbook: its name, options, and the variable for its script's arguments."""
    spec = importlib.util.spec_from_file_location("muster_command", PROGRAM)
    if spec is None or spec.loader is None:
        return {}
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        playbook: (name, options, module.SCRIPT_COMMANDS.get(name, "launch_args"))
        for name, (playbook, _role, _summary, options) in module.COMMANDS.items()
    }


@functools.cache
def playbook_pattern() -> re.Pattern[str]:
    """Return a pattern that matches a playbook in a message, alone or in a command, with the options after it."""
    names = "|".join(commands())
    return re.compile(rf"(?<![\w./@'\"-])(?:ansible-playbook (?:\S*/)?)?({names})\.yml(?!\w)((?:{OPTION.pattern})*)")
