# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find networks that this machine reaches without a default route: local networks, a VPN's and Docker's."""

from __future__ import annotations

import ipaddress
from pathlib import Path

_ROUTES = Path("/proc/net/route")


def parse_route_table(table: str) -> list[str]:
    """Return the CIDR blocks in a table in the format of /proc/net/route: hexadecimal, least significant byte first."""
    networks = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        try:
            address, mask = (ipaddress.IPv4Address(bytes.fromhex(fields[number])[::-1]) for number in (1, 7))
            network = ipaddress.ip_network(f"{address}/{mask}", strict=False)
        except (IndexError, ValueError):
            continue
        if network.prefixlen:
            networks.add(str(network))
    return sorted(networks)


def local_networks() -> list[str]:
    """Return the CIDR blocks of this machine's networks, or none on systems other than Linux."""
    try:
        return parse_route_table(_ROUTES.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return []
