# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the position of a YAML error.

Ansible drops it if the file belongs to group_vars or host_vars: its plugin raises a new error with the message only.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleParserError
from yaml import MarkedYAMLError

from ansible_collections.muster.training.plugins.plugin_utils._command_line.muster_command import path_as_typed

YAML_ERROR = "YAML parsing failed: "  # the beginning of Ansible's message about a YAML error


def describe_position(path: str, line: object, column: object) -> str:
    """Return a position in a file, with the path as the user would type it."""
    numbers = [f"{name} {number}" for name, number in (("line", line), ("column", column)) if number]
    return ", ".join([path_as_typed(path), *numbers])


def is_located(error: BaseException) -> bool:
    """Return whether an error is a YAML error with its position."""
    has_position = bool(getattr(getattr(error, "obj", None), "path", None))
    return isinstance(error, AnsibleParserError) and str(error).startswith(YAML_ERROR) and has_position


def describe_yaml_error(error: BaseException | None) -> str:
    """Return the position and message of the YAML error from which an error arose, or an empty string."""
    while error is not None and not is_located(error):
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    origin: Any = getattr(error, "obj", None)
    cause, start = error.__cause__, ""
    if isinstance(cause, MarkedYAMLError) and cause.context_mark and cause.context_mark.line + 1 < origin.line_num:
        start = f" It begins in line {cause.context_mark.line + 1}."  # in YAML, an error may appear much later
    return f"{describe_position(origin.path, origin.line_num, origin.col_num)}: {error}{start}"


def find_yaml_error(play: Any) -> str:
    """Return the position and message of the first YAML error in the variables of any host, or an empty string."""
    manager = play.get_variable_manager()
    for host in manager._inventory.hosts.values():  # a play on localhost reads other hosts' variables, too
        try:
            manager.get_vars(play=play, host=host)
        except Exception as error:  # any error: the YAML error may be in its context
            if description := describe_yaml_error(error):
                return description
    return ""
