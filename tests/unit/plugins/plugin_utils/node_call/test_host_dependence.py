# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that depend on the host are found through all variables that they reach."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._node_call.host_dependence import (
    reachable_names,
    varying_names,
)

TASK = {"muster.training.call_nodes": {"options": "{{ __options }}"}, "become": "{{ user | length > 0 }}"}


def test_names_are_followed_through_templates() -> None:
    variables = {
        "__options": {"environment": "{{ settings }}", "list": ["{% if fast %}a{% endif %}"]},
        "settings": {"NCCL_SOCKET_IFNAME": "{{ interface }}"},
        "interface": "{{ links[0] }}",
    }
    assert {"settings", "fast", "interface", "links", "user"} <= reachable_names(TASK, variables)


def test_text_that_is_not_a_template_references_nothing() -> None:
    variables = {"__options": {"script": "inventory_hostname"}, "user": "interface"}
    assert not {"inventory_hostname", "interface"} & reachable_names(TASK, variables)


def test_circular_variables_end() -> None:
    assert "b" in reachable_names("{{ a }}", {"a": "{{ b }}", "b": "{{ a }}"})


def test_varying_variables_are_those_that_differ_or_are_missing_somewhere() -> None:
    registered: dict[str, Any] = {"by_node": {}}
    hosts: list[dict[str, Any]] = [
        {"address": "10.0.0.1", "user": "a", "only": 1, "result": registered},
        {"address": "10.0.0.2", "user": "a", "result": registered},
        {"address": "10.0.0.3", "user": "a", "other": 2, "result": registered},
    ]
    assert varying_names(hosts) == {"address", "only", "other"}
    assert varying_names(hosts[:1]) == set()
