# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address that a name in a list of machines resolves to."""

from __future__ import annotations

import socket

import pytest

from ansible_collections.muster.training.plugins.filter.static_inventory import resolve_address


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["10.0.0.7"], "10.0.0.7"),
        (["fd00::7", "10.0.0.7"], "10.0.0.7"),
        (["fd00::7"], "fd00::7"),
        (["fe80::7"], ""),
        (["::1"], ""),
        (["127.0.1.1"], ""),
    ],
)
def test_ipv6_address_is_used_without_an_ipv4_address(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], expected: str
) -> None:
    entries = [
        (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
        for address in addresses
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: entries)
    assert resolve_address("gpu1") == expected
