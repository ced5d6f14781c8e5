# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reject text after -e that is not part of a variable.

Ansible ends a value at its first space: from -e launch_args="--resume --epochs 1" it silently keeps only --resume.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.parsing.splitter import split_args

ASSIGNMENT = re.compile(r"(.+?)(?<!\\)=(.*)", re.DOTALL)  # matches the name in the same way as Ansible
ARGUMENT_VARIABLES = ("launch_args", "preflight_args")  # later tokens may be job arguments that look like lr=0.1


def reject_stray_extra_vars() -> None:
    """Raise AnsibleActionFail if part of the text after -e is not part of a variable."""
    problems = find_stray_extra_vars(map(str, context.CLIARGS.get("extra_vars") or ()))
    if problems:
        raise AnsibleActionFail("\n".join(problems))


def find_stray_extra_vars(texts: Iterable[str]) -> list[str]:
    """Return a sentence, with the correct form, for each -e argument that Ansible partly ignores."""
    return [
        problem for text in texts if text and text[0] not in "@[{" for problem in [describe_stray_part(text)] if problem
    ]


def describe_stray_part(text: str) -> str:
    """Describe the part of a text NAME=VALUE ... that is not part of a variable; empty if there is none."""
    tokens = split_args(text)
    name = value = ""
    for index, token in enumerate(tokens):
        match = ASSIGNMENT.fullmatch(token)
        is_variable = match and match[1].strip().isidentifier()
        if not is_variable or (name in ARGUMENT_VARIABLES and value[:1] not in ("'", '"')):
            stray_text = " ".join(tokens[index:])
            problem = f"-e {shlex.quote(text)}: {repr(stray_text)[:200]} does not belong to a variable"
            if name:
                full_value = f"{value} {stray_text}"
                return (
                    f"{problem}, because a value ends at its first space. Quote the value inside the shell's "
                    f"quotes: {quote_extra_var(name, full_value)}. Give each additional variable its own -e"
                )
            if re.search(r"\.(ya?ml|json)$", stray_text):
                return f"{problem}. Put an @ before a file name: -e {shlex.quote('@' + stray_text)}"
            return (
                f"{problem}. Use NAME=VALUE, such as -e nnodes=2; job arguments are a variable too: "
                f"{quote_extra_var('launch_args', stray_text)}"
            )
        if match:
            name, value = match[1].strip(), match[2]
    return ""


def quote_extra_var(name: str, value: str) -> str:
    """Return an -e option for a value that contains spaces."""
    if re.search(r"['$`!\\\"]", value):
        return f"-e {shlex.quote(json.dumps({name: value}))}"
    return f"-e \"{name}='{value}'\""
