# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages on values of a wrong type, with those of Ansible's own validator."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.muster.training.plugins.plugin_utils._command_line.type_errors import describe_type_errors

OPTIONS: dict[str, Any] = {
    "environment": {"type": "dict"},
    "count": {"type": "int"},
    "share": {"type": "float"},
    "enabled": {"type": "bool"},
    "ports": {"type": "list", "elements": "int"},
    "limits": {"type": "dict", "options": {"memory": {"type": "int"}}},
    "rules": {
        "type": "list",
        "elements": "dict",
        "options": {"port": {"type": "int"}, "sources": {"type": "list", "elements": "dict"}},
    },
    "mode": {"type": "str", "choices": ["fast", "safe"]},
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("environment", ["A=1"], "environment is a list, but must be a dictionary"),
        ("environment", "s3cr3t", "environment is a string, but must be a dictionary"),
        ("count", "many", "count is 'many', but must be an integer"),
        ("count", 1.5, "count is 1.5, but must be an integer"),
        ("count", [1], "count is a list, but must be an integer"),
        ("count", "9" * 60 + "\x1b[31m" * 9, f"count is '{'9' * 60}\\x1b[31m\\x1b[31m\\x1, but must be an integer"),
        ("share", "half", "share is 'half', but must be a number"),
        ("enabled", "maybe", "enabled is 'maybe', but must be true or false"),
        ("ports", {"a": 1}, "ports is a dictionary, but must be a list"),
        ("ports", ["a"], "an entry of ports is a string, but must be an integer"),
        ("limits", {"memory": "all"}, "memory in limits is a string, but must be an integer"),
        ("rules", ["a"], "an entry of rules is a string, but must be a dictionary"),
        ("rules", [{"port": []}], "port in rules is a list, but must be an integer"),
        ("rules", [{"sources": [3]}], "an entry of sources in rules is an integer, but must be a dictionary"),
        ("mode", "slow", "value of mode must be one of: fast, safe, got: slow"),
    ],
)
def test_wrong_type_is_described_without_python_classes(name: str, value: Any, message: str) -> None:
    values = {name: value}
    result = ArgumentSpecValidator(OPTIONS).validate(values, validate_role_argument_spec=True)
    assert describe_type_errors(result.error_messages, values) == [message]
