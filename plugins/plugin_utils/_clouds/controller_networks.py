# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The networks that this machine reaches without a default route: its own, a VPN's, Docker's. Private."""

from __future__ import annotations

import ipaddress
from pathlib import Path

_ROUTES = Path("/proc/net/route")


def networks_of(routes: str) -> list[str]:
    """Blocks as 10.0.0.0/8 of a table as Linux has it in /proc/net/route: bytes in hexadecimal, the last one first."""
    found = set()
    for line in routes.splitlines()[1:]:
        fields = line.split()
        try:
            address, mask = (ipaddress.IPv4Address(bytes.fromhex(fields[number])[::-1]) for number in (1, 7))
            network = ipaddress.ip_network(f"{address}/{mask}", strict=False)
        except (IndexError, ValueError):
            continue
        if network.prefixlen:
            found.add(str(network))
    return sorted(found)


def own_networks() -> list[str]:
    """This machine's, none if it is no Linux."""
    try:
        return networks_of(_ROUTES.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return []
