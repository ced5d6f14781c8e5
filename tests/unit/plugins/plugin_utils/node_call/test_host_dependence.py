# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host-dependent options are detected through all variables that they reference."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._node_call.host_dependence import (
    reachable_names,
    reached_names,
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


def test_circular_variable_references_terminate() -> None:
    assert "b" in reachable_names("{{ a }}", {"a": "{{ b }}", "b": "{{ a }}"})


def test_names_of_attributes_filters_keys_and_keywords_are_not_variables() -> None:
    task = {
        "name": "Read the state",
        "register": "status",
        "options": {
            "image": "{{ {'image': job.image} | combine(job['tags']) | map(attribute='name') | default('id') }}"
        },
    }
    other_names = {"name", "state", "status", "register", "image", "tags", "id", "default", "options"}
    assert reached_names({*other_names, "job"}, task, {}) == {"job"}


def test_names_in_conditions_lookups_and_invalid_templates_are_variables() -> None:
    assert reached_names({"enabled"}, {"when": ["enabled | bool"]}, {}) == {"enabled"}
    assert reached_names({"vars"}, "{{ lookup('ansible.builtin.vars', 'address') }}", {}) == {"vars"}
    assert reached_names({"template"}, "{{ lookup('template', 'file.j2') }}", {}) == {"template"}
    assert reached_names({"address"}, "{% do address %}", {}) == {"address"}


def test_variables_of_all_hosts_are_not_followed() -> None:
    class Unreadable(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("each variable of each host would be rendered")

    assert reached_names({"address"}, "{{ hostvars['a'].address }}", {"hostvars": Unreadable()}) == set()


class Vaulted:
    """A value encrypted with Ansible Vault, with an unknown password."""

    def __init__(self, ciphertext: str) -> None:
        self._ciphertext = ciphertext

    def __eq__(self, other: object) -> bool:
        raise ValueError("no vault password")

    __hash__ = None  # type: ignore[assignment]


def test_encrypted_values_are_compared_without_their_password() -> None:
    def hosts(first: Any, second: Any) -> list[dict[str, Any]]:
        return [{"secret": first}, {"secret": second}]

    assert varying_names(hosts(Vaulted("x"), Vaulted("x"))) == set()
    assert varying_names(hosts(Vaulted("x"), Vaulted("y"))) == {"secret"}
    assert varying_names(hosts(Vaulted("x"), "x")) == {"secret"}
    assert varying_names(hosts([Vaulted("x")], [Vaulted("x")])) == {"secret"}


def test_varying_variables_are_those_that_differ_or_are_missing_somewhere() -> None:
    registered: dict[str, Any] = {"by_node": {}}
    hosts: list[dict[str, Any]] = [
        {"address": "10.0.0.1", "user": "a", "only": 1, "result": registered},
        {"address": "10.0.0.2", "user": "a", "result": registered},
        {"address": "10.0.0.3", "user": "a", "other": 2, "result": registered},
    ]
    assert varying_names(hosts) == {"address", "only", "other"}
    assert varying_names(hosts[:1]) == set()
