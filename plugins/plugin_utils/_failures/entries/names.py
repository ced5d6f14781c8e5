# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures to resolve the host name of a node."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Host names"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="name-unknown",
        title="A host name cannot be resolved",
        example="[c10d] The IPv4 network addresses of (node1, 29500) cannot be retrieved (gai error: -2 - Name "
        "or service not known)",
        texts=(
            r"The IPv[46] network addresses of \((?!localhost,)[^\n)]{1,255}\) cannot be retrieved \(gai error",
            r"host not found: (?:Name or service not known|Temporary failure in name resolution|No address)",
            r"socket\.gaierror: \[Errno -\d{1,2}\]",
            r"ssh: Could not resolve hostname ",
            r"\bgetaddrinfo failed: (?:Name or service not known|Temporary failure in name resolution)",
        ),
        cause=(
            "This node cannot resolve the name in the message: the name is missing from /etc/hosts or "
            "misspelled, or the DNS server is not responding."
        ),
        remedy=(
            "for node names, run ansible-playbook site.yml --tags hosts_file to write all of them to /etc/hosts "
            "on each node. For other servers, run `getent hosts NAME` on the node to test the name; in a "
            "container without the node's network, remove the network option from launch_container_options"
        ),
        source="meta-pytorch/torchx#540",
        general=True,
        recoverable=True,
        refines=("mpi-network", "mpi-daemon-missing", "gloo-full-mesh"),
    ),
)
