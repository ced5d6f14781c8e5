# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are this machine."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._cluster.local_connection import is_local


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ansible_connection": "local"}, True),
        ({"ansible_connection": "ansible.builtin.local"}, True),
        ({"ansible_connection": "ssh", "ansible_host": "127.0.0.1"}, False),
        ({}, False),
    ],
)
def test_nodes_without_a_connection_are_local(variables: dict[str, str], expected: bool) -> None:
    assert is_local(variables) == expected
