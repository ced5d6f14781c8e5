# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Define the command line for measurements with several numbers of nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tests.lab import Lab, LabError, Node

FIRST_EXTRA = 100
"""Last octet of the first additional address that a host gets."""


def extra_address(lab: Lab, host: Node, number: int) -> str:
    """Give a host an additional address for one of several nodes that share the host, and return it. Raises
    LabError.
    """
    address = f"{host.address.rpartition('.')[0]}.{FIRST_EXTRA + number}"
    completed = lab.exec(host.name, ["ip", "address", "replace", f"{address}/24", "dev", "eth0"])
    if completed.returncode:
        raise LabError(f"{host.name}: {completed.stderr.strip()}")
    return address


def main(description: str | None, nodes: list[int], measure: Callable[[list[int], int], int]) -> int:
    """Parse the command line and measure; the exit code is 1 if a limit is exceeded, 2 if measuring is impossible.

    nodes: the default numbers of nodes. measure: measures them for a number of rounds.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--nodes", type=int, nargs="+", default=nodes)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        return measure(arguments.nodes, arguments.rounds)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
