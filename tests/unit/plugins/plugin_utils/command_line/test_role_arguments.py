# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes share the result of a template only if all variables that it references are equal."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_arguments import (
    describe_wrong_values,
    group_by_values,
    referenced_names,
)


@pytest.mark.parametrize(
    ("item", "second", "together"),
    [
        ({"port": 22}, {"port": 22}, True),
        ({"port": 22, "rank": 1}, {"port": 22, "rank": 2}, True),  # nothing reads the variable whose values differ
        ({"port": 22}, {"port": "22"}, False),
        ({"port": 1}, {"port": True}, False),
        ({"port": 22}, {}, False),
        ({"port": "{{ a }}", "a": 1}, {"port": "{{ a }}", "a": 2}, False),
        ({"port": "{{ a }}", "a": 1}, {"port": "{{ a }}"}, False),
        ({"port": ["{{ a }}"], "a": "{{ __b }}", "__b": 1}, {"port": ["{{ a }}"], "a": "{{ __b }}", "__b": 2}, False),
        ({"port": "{% if a %}1{% endif %}", "a": 1}, {"port": "{% if a %}1{% endif %}", "a": 2}, False),
        ({"port": "{{ a }}", "a": "{{ port }}"}, {"port": "{{ a }}", "a": "{{ port }}"}, True),  # a cycle
        ({"port": "{{ hostvars.x.a }}"}, {"port": "{{ hostvars.x.a }}"}, False),
        ({"port": "{{ lookup('vars', 'a' ~ 'b') }}"}, {"port": "{{ lookup('vars', 'a' ~ 'b') }}"}, False),
        ({"port": "a", "a": 1}, {"port": "a", "a": 2}, True),
    ],
)
def test_nodes_share_a_value_only_if_nothing_it_reads_differs(
    item: dict[str, Any], second: dict[str, Any], together: bool
) -> None:
    assert group_by_values(["port"], {"n1": item, "n2": second}) == ([["n1", "n2"]] if together else [["n1"], ["n2"]])


def test_variables_read_by_a_variable_are_detected() -> None:
    variables = {"a": {"x": ["{{ b | default(c) }}"]}, "b": "{{ d }}", "e": "{{ f }}"}
    assert referenced_names(["a"], variables) == {"a", "b", "c", "d", "default"}


def test_wrong_value_is_reported_once() -> None:
    wrong = [("r", "w", ["n1"]), ("s", "w", ["n2"]), ("r", "w", ["n2", "n3"]), ("r", "v", ["n3"])]
    assert describe_wrong_values(wrong, 3) == [
        "the role r rejects a value: w",
        "the role s rejects a value on n2: w",
        "the role r rejects a value on n3: v",
    ]
