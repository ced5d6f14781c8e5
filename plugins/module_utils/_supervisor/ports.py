# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find free ports for an attempt's rendezvous."""

from __future__ import annotations

import errno
import socket

# number of ports that the first node's successor may use: another run on that node may be using the planned one
LIFELINE_PORTS = 4
# number of ports that an attempt may use, starting at the master port: another program may have taken the first
PORTS = 16


def lifeline_port(planned: int, number: int) -> int:
    """Return a port on which a node leads a run: number 0 is the planned port, and the following ones are below it.

    The ports above it belong to the ranks.
    """
    return max(1, planned - number % LIFELINE_PORTS)


def free_port(first: int, excluded: int) -> int:
    """Return the first of several ports that nothing is listening on, or 0. excluded: the lifeline's port."""
    for port in range(first, min(first + PORTS, 65536)):
        if port == excluded:
            continue
        if all(is_free(port, family) for family in (socket.AF_INET, socket.AF_INET6)):
            return port
    return 0


def is_free(port: int, family: int) -> bool:
    """Return whether nothing listens on a port on any address in a family, or True if the machine lacks it."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return True
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind(("", port))
            sock.listen(1)  # a port that is used only for outgoing connections can still be bound
        except OSError as error:
            return error.errno == errno.EADDRNOTAVAIL
    return True
