# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose a new network's address block, without overlap with networks its machines may reach. Private, pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused

#: Private ranges, unused on the internet: https://www.rfc-editor.org/rfc/rfc1918
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
#: Docker's default ranges for container networks:
#: https://docs.docker.com/engine/network/#automatic-subnet-allocation
DOCKER = ("172.17.0.0/16", "172.18.0.0/16", "172.19.0.0/16", "172.20.0.0/14", "172.24.0.0/14", "172.28.0.0/14") + (
    "192.168.0.0/16",
)


def free_block(taken: Iterable[str], prefix: int = 16) -> str:
    """The first free private block of the wanted size, such as 10.0.0.0/16.

    taken: blocks such as 10.1.0.0/16, of the account's networks and this machine's; Docker's always count as taken,
    IPv6 blocks are ignored. prefix: length, from 8 to 28. Raises PlanRefused if none is free, a block is malformed,
    or the library netaddr is missing.
    """
    netaddr = _netaddr()
    wanted = list(taken)
    try:
        blocks = [netaddr.IPNetwork(block) for block in [*wanted, *DOCKER]]
    except (netaddr.AddrFormatError, ValueError) as error:
        raise PlanRefused(f"an existing network has an unreadable address block: {error}") from None
    free = netaddr.IPSet(PRIVATE) - netaddr.IPSet([block for block in blocks if block.version == 4])
    for room in free.iter_cidrs():
        if room.prefixlen <= prefix:
            return str(next(room.subnet(prefix)))
    raise PlanRefused(
        f"no private /{prefix} address block is free: {len(wanted)} networks of the account and of this machine, and "
        "Docker, take all. Use an existing subnet (-e provision_subnet_id=...), or remove a network"
    )


def _netaddr():  # type: ignore[no-untyped-def]  # imported late: needed only to make networks
    try:
        import netaddr  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise PlanRefused(
            "choosing addresses for a new network needs the Python library netaddr on this machine. Install it for "
            f"the Python that runs Ansible: {sys.executable} -m pip install netaddr"
        ) from None
    return netaddr
