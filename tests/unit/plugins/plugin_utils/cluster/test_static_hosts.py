# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""User-provided lists of machines, in the hostfile formats of launchers."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.static_hosts import (
    ListedHost,
    read_hosts,
    render_inventory,
)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("gpu1 slots=8", ListedHost("gpu1", 8)),
        ("  gpu1.lab  slots = 8 max_slots=16 # the old one", ListedHost("gpu1.lab", 8)),
        ("gpu1 max-slots=16 slots=2\r", ListedHost("gpu1", 2)),
        ("10.0.0.4:8", ListedHost("10.0.0.4", 8)),
        ("10.0.0.4", ListedHost("10.0.0.4")),
        ("ubuntu@10.0.0.4 slots=1", ListedHost("10.0.0.4", 1, "ubuntu")),
        ("localhost slots=2", ListedHost("localhost", 2)),
    ],
)
def test_each_hostfile_form_is_read(line: str, host: ListedHost) -> None:
    assert read_hosts(["# of the first cluster", "", line], "line") == [host]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a", "a slots=2"], "line 2: a is listed twice. List each machine once, with all its slots"),
        (["a slots=0"], "line 1: a has no slots. Remove the line, or write slots=N"),
        (["[gpus]"], "line 1 is '[gpus]'; write a machine as in `gpu1`"),
        (["a,b"], "line 1 is 'a,b'; write a machine"),
        (["a; rm -rf /"], "line 1 is 'a; rm -rf /'; write a machine"),
        (["{{ x }}"], "line 1 is '{{ x }}'; write a machine"),
        (["-oProxyCommand=x"], "line 1 is '-oProxyCommand=x'; write a machine"),
        (["gpu\u00e4"], r"line 1 is 'gpu\xe4'; write a machine"),
        (
            ["localhost slots=2", "gpu2 slots=2"],
            "localhost is listed with other machines, but each of them resolves this name to itself",
        ),
        (["# none"], "no machines are listed; write one per line, as in `gpu1`"),
    ],
)
def test_invalid_machine_list_is_refused_in_a_one_line_message(lines: list[str], message: str) -> None:
    with pytest.raises(ValueError) as problem:
        read_hosts(lines, "line")
    assert str(problem.value).startswith(message) and len(str(problem.value).splitlines()) == 1


@given(st.lists(st.text(max_size=40) | st.from_regex(r"[a-z0-9.:]{1,6}( slots=[0-9])?", fullmatch=True), max_size=4))
def test_any_accepted_list_becomes_an_inventory_of_its_machines(lines: list[str]) -> None:
    try:
        hosts = read_hosts(lines, "line")
    except ValueError:
        return
    result = yaml.safe_load(render_inventory(hosts, "x", lambda _name: "10.0.0.9"))["training"]["hosts"]
    assert len(result) == len(hosts) and all(isinstance(name, str) for name in result)


def test_inventory_contains_known_values_and_asks_for_missing_addresses() -> None:
    known_addresses = {"gpu1": "10.0.0.4"}
    hosts = [ListedHost("gpu1", 8), ListedHost("gpu2", user="ubuntu"), ListedHost("10.0.0.6"), ListedHost("8.8.8.8", 4)]
    text = render_inventory(hosts, "hosts.txt", lambda name: known_addresses.get(name, ""))
    assert yaml.safe_load(text)["training"]["hosts"] == {
        "gpu1": {"node_address": "10.0.0.4", "node_slots": 8},
        "gpu2": {"node_address": None, "ansible_user": "ubuntu"},
        "node0": {"ansible_host": "10.0.0.6"},
        "node1": {"ansible_host": "8.8.8.8", "node_slots": 4},
    }
    assert text.count("ip -brief address") == 2, "for the one that is not found, and the one with a public address"


def test_each_machine_gets_a_unique_name() -> None:
    hosts = read_hosts(["node0", "10.0.0.5", "node2", "10.0.0.6", "12", "no", "1e3"], "line")
    result = yaml.safe_load(render_inventory(hosts, "x", lambda _name: ""))["training"]["hosts"]
    assert list(result) == ["node0", "node1", "node2", "node3", "12", "no", "1e3"]


def test_localhost_alone_means_this_machine() -> None:
    (host,) = yaml.safe_load(render_inventory([ListedHost("localhost", 2)], "hosts.txt", lambda _name: ""))["training"][
        "hosts"
    ].values()
    assert (host["ansible_connection"], host["node_address"], host["node_slots"]) == ("local", "127.0.0.1", 2)
