# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA device ports (InfiniBand, RoCE, EFA) as the kernel reports them."""

from __future__ import annotations

import glob
import os

from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

DEVICES = "/sys/class/infiniband"
MAX_PORTS = 64
MAX_GIDS = 16  # number of entries read from a port's table, which has up to 256; those with addresses come first
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
IPV4_PREFIX = "0000:0000:0000:0000:0000:ffff:"


def read_gids(port: str) -> list[dict[str, Any]]:
    """Return the used entries of a port's GID table: index, type (such as RoCE v2), ipv4."""
    gids = []
    for index in range(MAX_GIDS):
        gid = read_value(f"{port}/gids/{index}")
        if not gid:
            break
        if gid != NO_GID:
            kind = read_value(f"{port}/gid_attrs/types/{index}")
            gids.append({"index": index, "type": kind, "ipv4": gid.startswith(IPV4_PREFIX)})
    return gids


def read_ports(root: str = DEVICES) -> list[dict[str, Any]]:
    """Return all ports: name (device/port), state (such as ACTIVE), link (InfiniBand, Ethernet), driver, gids."""
    ports = []
    for path in sorted(glob.glob(f"{root}/*/ports/*"))[:MAX_PORTS]:
        device, _ports, number = path[len(root) + 1 :].split("/")
        link = read_value(f"{path}/link_layer")
        ports.append(
            {
                "name": f"{device}/{number}",
                "state": read_value(f"{path}/state").partition(": ")[2],
                "link": link,
                "driver": os.path.basename(os.path.realpath(f"{root}/{device}/device/driver")),
                "gids": read_gids(path) if link == "Ethernet" else [],
            }
        )
    return ports
