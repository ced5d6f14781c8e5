# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from the logs of a node's ranks what NCCL has set up for them: network, plug-in, release and interface."""

from __future__ import annotations

import os
import re
from itertools import islice

from ansible_collections.muster.training.plugins.module_utils._files.bounded import list_directory, open_regular
from ansible_collections.muster.training.plugins.module_utils._run.nccl_setups import MAX_SETUPS, TEXTS
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import rank_logs
from ansible_collections.muster.training.plugins.module_utils._supervisor.flight_recorder import is_newer
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.nccl_network import (
    NCCL_LOG,
    networks_in,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan

MAX_READ = 262_144  # bytes at the beginning of a log
MAX_TOTAL = 4_194_304  # bytes of all logs
MAX_LINE = 1000  # characters of a line
MAX_LINES = 10_000  # lines of NCCL in the logs of a rank
MAX_TEXT = 60  # characters of a value
LINKS = {"IB": "InfiniBand", "RoCE": "RoCE"}  # link layers of RDMA adapters, by NCCL's names
LOG_PID = re.compile(r"\.([0-9]{1,7})\.log\Z")  # in the name of a log of NCCL
VERSION = re.compile(r"\b[NR]CCL version (?P<value>\d{1,3}\.\d{1,3}\.\d{1,3}(?:\+(?:cuda|hip)\d{1,3}\.\d{1,3})?)")
# src/plugin/net.cc of NCCL, and aws-ofi-nccl
PLUGIN = re.compile(
    r"NCCL INFO NET/(?:Plugin ?: Loaded net plugin (?P<name>[\w /.-]{1,40} ?\(v\d{1,3}\))|"
    r"OFI (?:Initializing|Using) (?P<ofi>aws-ofi-nccl [\w.-]{1,40}))"
)
LINK = re.compile(r"NCCL INFO NET/IB ?: Using [^\n]{0,200}?:\d{1,3}/(?P<value>IB|RoCE)\b")
INTERFACE = re.compile(
    r"NCCL INFO (?:Bootstrap|NET/Socket) ?: Using (?:\[\d{1,2}\])?(?P<interface>[\w.@-]{1,40}):"
    r"(?P<address>[0-9a-fA-F.:]{3,60})(?:%[\w.-]{1,40})?<\d"
)


def read_setups(directory: str, plan: Plan, pids: Mapping[int, int], since: float) -> list[Data]:
    """Return what NCCL has set up for the ranks of a node, with the ranks for which it is the same.

    Args:
        directory: The run directory of the node.
        plan: Its plan.
        pids: The local rank of each process that is a rank, by pid.
        since: The start of the attempt: logs of NCCL that are older are ignored.
    """
    node, budget = plan["node"], MAX_TOTAL
    groups: dict[tuple[str, ...], list[int]] = {}
    logs = nccl_logs(directory, pids, since)
    for local_rank in range(node["slots"]):
        text = ""
        for log in dict.fromkeys([*rank_logs(plan, directory, local_rank), *logs.get(local_rank, [])]):
            head = read_head(log, min(MAX_READ, budget))
            budget -= len(head)
            text += head
        setup = setup_in(text)
        if any(setup.values()):
            groups.setdefault(tuple(setup[name] for name in TEXTS), []).append(node["first_rank"] + local_rank)
    return [{"ranks": ranks, **dict(zip(TEXTS, values))} for values, ranks in list(groups.items())[:MAX_SETUPS]]


def nccl_logs(directory: str, pids: Mapping[int, int], since: float) -> dict[int, list[str]]:
    """Return the files that NCCL_DEBUG_FILE names, by local rank."""
    logs: dict[int, list[str]] = {}
    for name in list_directory(directory):
        match = LOG_PID.search(name)
        local_rank = pids.get(int(match[1])) if match is not None and NCCL_LOG.fullmatch(name) else None
        path = os.path.join(directory, name)
        if local_rank is not None and is_newer(path, since):
            logs.setdefault(local_rank, []).append(path)
    return logs


def read_head(path: str, size: int) -> str:
    """Return the first `size` bytes of a file as text, or an empty string if it cannot be read."""
    try:
        with open(path, "rb", opener=open_regular) as stream:
            return stream.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def setup_in(text: str) -> dict[str, str]:
    """Return the setup that a log of NCCL shows: a text for each of TEXTS, "" if it is not shown."""
    lines = (line[:MAX_LINE] for line in text.splitlines() if "NCCL " in line or "RCCL " in line)
    log = "\n".join(islice(lines, MAX_LINES))
    version, plugin, link, interface = (pattern.search(log) for pattern in (VERSION, PLUGIN, LINK, INTERFACE))
    setup = {
        "network": " and ".join(sorted(networks_in(log))),
        "link": LINKS[link["value"]] if link else "",
        "plugin": (plugin["name"] or plugin["ofi"]).strip() if plugin else "",
        "version": version["value"] if version else "",
        "interface": interface["interface"] if interface else "",
        "address": interface["address"] if interface else "",
    }
    return {name: value[:MAX_TEXT] for name, value in setup.items()}
