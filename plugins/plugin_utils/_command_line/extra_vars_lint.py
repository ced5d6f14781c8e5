# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words after -e that reach no variable. Private to this collection, controller only.

Ansible ends a value at its first blank: from -e launch_args="--resume --epochs 1" it silently keeps only --resume.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.parsing.splitter import split_args

ASSIGNMENT = re.compile(r"(.+?)(?<!\\)=(.*)", re.DOTALL)  # as Ansible finds the name
ARGUMENT_VARIABLES = (
    "launch_args",
    "preflight_args",
)  # what follows these may be arguments that look like variables: lr=0.1


def reject_stray_extra_vars() -> None:
    """Raise AnsibleActionFail if a word after -e in this command reaches no variable."""
    problems = find_stray_extra_vars(map(str, context.CLIARGS.get("extra_vars") or ()))
    if problems:
        raise AnsibleActionFail("\n".join(problems))


def find_stray_extra_vars(texts: Iterable[str]) -> list[str]:
    """One sentence for each text after -e of which Ansible loses a part, with the right form."""
    return [
        problem for text in texts if text and text[0] not in "@[{" for problem in [describe_stray_part(text)] if problem
    ]


def describe_stray_part(text: str) -> str:
    """What of a text NAME=VALUE ... reaches no variable, in a sentence; "" if all of it does."""
    tokens = split_args(text)
    name = value = ""
    for index, token in enumerate(tokens):
        match = ASSIGNMENT.fullmatch(token)
        is_variable = match and match[1].strip().isidentifier()
        if not is_variable or (name in ARGUMENT_VARIABLES and value[:1] not in ("'", '"')):
            stray_text = " ".join(tokens[index:])
            problem = f"-e {shlex.quote(text)}: {ascii(stray_text)[:200]} does not belong to a variable"
            if name:
                full_value = f"{value} {stray_text}"
                return (
                    f"{problem}, because a value ends at its first space. Needed: quotes around the value, inside the "
                    f"shell's quotes: {quote_extra_var(name, full_value)}. Give each further variable its own -e"
                )
            if re.search(r"\.(ya?ml|json)$", stray_text):
                return f"{problem}. Needed: an @ before a file name: -e {shlex.quote('@' + stray_text)}"
            return (
                f"{problem}. Needed: NAME=VALUE, such as -e nnodes=2; job arguments are a variable too: "
                f"{quote_extra_var('launch_args', stray_text)}"
            )
        if match:
            name, value = match[1].strip(), match[2]
    return ""


def quote_extra_var(name: str, value: str) -> str:
    """How to give a value with blanks after -e."""
    if re.search(r"['$`!\\\"]", value):
        return f"-e {shlex.quote(json.dumps({name: value}))}"
    return f"-e \"{name}='{value}'\""
