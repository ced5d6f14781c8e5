# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose an address block for a new network that does not overlap with networks that its machines may reach."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError

# Private ranges that are not used on the internet: https://www.rfc-editor.org/rfc/rfc1918
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
# Docker's default ranges for container networks:
# https://docs.docker.com/engine/network/#automatic-subnet-allocation
DOCKER = ("172.17.0.0/16", "172.18.0.0/16", "172.19.0.0/16", "172.20.0.0/14", "172.24.0.0/14", "172.28.0.0/14") + (
    "192.168.0.0/16",
)


def choose_free_block(used_blocks: Iterable[str], prefix: int = 16) -> str:
    """Return the first free private block of the given size, such as 10.0.0.0/16.

    Args:
        used_blocks: CIDR blocks of the account's and this machine's networks. Docker's always count as used;
            IPv6 blocks are ignored.
        prefix: prefix length, 8 to 28.

    Raises:
        PlanRefusedError: no block is free, a block is malformed, or the library netaddr is missing.
    """
    netaddr = _netaddr()
    used = list(used_blocks)
    try:
        blocks = [netaddr.IPNetwork(block) for block in [*used, *DOCKER]]
    except (netaddr.AddrFormatError, ValueError) as error:
        raise PlanRefusedError(f"cannot parse the address block of an existing network: {error}") from None
    free_space = netaddr.IPSet(PRIVATE) - netaddr.IPSet([block for block in blocks if block.version == 4])
    for cidr in free_space.iter_cidrs():
        if cidr.prefixlen <= prefix:
            return str(next(cidr.subnet(prefix)))
    raise PlanRefusedError(
        f"no private /{prefix} address block is free: all are used by Docker and by {len(used)} networks of the "
        "account and of this machine. Use an existing subnet (-e provision_subnet_id=...), or remove a network"
    )


def _netaddr():  # type: ignore[no-untyped-def]  # imported late: needed only to create networks
    try:
        import netaddr  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise PlanRefusedError(
            "choosing addresses for a new network needs the Python library netaddr on this machine. Install it for "
            f"the Python that runs Ansible: {sys.executable} -m pip install netaddr"
        ) from None
    return netaddr
