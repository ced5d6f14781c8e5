# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of RDMA networks."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "InfiniBand, RoCE and EFA"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="rdma-timed-out",
        title="The RDMA network does not link two nodes",
        example="NCCL WARN NET/IB : Got completion from peer ... with error 12, opcode 0, len 0, vendor err 129",
        texts=(r"NET/IBP? ?: ?Got completion [^\n]{0,80}with (?:error |status=)12\b",),
        cause="A packet over InfiniBand or RoCE was not answered (error 12 is a timeout): the network cards of "
        "two nodes do not reach each other. With RoCE, mostly the default GID is of the wrong kind, or "
        "the switches do not route between the subnets.",
        remedy="""set the index of the RoCE v2 GID that `show_gids` lists: -e '{"launch_environment": """
        """{"NCCL_IB_GID_INDEX": "3"}}'; test with `ib_write_bw` between the two nodes. NCCL_IB_DISABLE=1 """
        "does without RDMA, over TCP",
        source="NVIDIA/nccl#1405",
    ),
)
