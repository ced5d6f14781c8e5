# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network that NCCL uses between the nodes, from its log: TCP on a node with RDMA ports is a problem.

With NCCL_DEBUG=INFO, NCCL logs it to the ranks' output or to NCCL_DEBUG_FILE. On nodes whose plan has NETWORK_LOG,
programs/stack_hook.py sets both variables for ranks that set neither.
"""

from __future__ import annotations

import os
import re

from ansible_collections.muster.training.plugins.module_utils._facts.rdma import read_ports
from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    file_size,
    list_directory,
    open_regular,
)
from ansible_collections.muster.training.plugins.module_utils._files.name_list import format_names
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import rank_logs
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.judge import Problem

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping, Sequence

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

MAX_READ = 262_144  # bytes of a log that are read at once
MAX_TEXT = 4_194_304  # characters of all logs that are read at once
MAX_LINE = 1000  # number of characters of a line that are searched for a reason
MAX_LINES = 2000  # number of lines about networks that are kept
MAX_NAMES = 4  # number of port names in a message
NCCL_LOG = re.compile(r"nccl\..{1,300}\.log", re.DOTALL)
SOCKET = "Socket"  # NCCL's name for TCP
CHOICES = ("NCCL_IB_DISABLE", "NCCL_NET")  # variables with which a job disables RDMA
EFA_DRIVER = "efa"
# src/transport/net_socket.cc, src/transport/net.cc, src/plugin/net.cc and src/init.cc in NCCL. Since 2.27, "Assigned".
NETWORK = re.compile(
    r"NCCL INFO (?:NET/(?P<tcp>Socket) : Using \[|Using network (?P<used>[\w /.-]{1,40}?)[ \t\r]{0,8}$"
    r"|Assigned NET plugin (?P<assigned>[\w /.-]{1,40}?) to comm"
    r"|[^\n]{1,200} via NET/(?P<channel>[\w .-]{1,40})/[0-9])",
    re.MULTILINE,
)
NCCL = "NCCL"  # appears in each line of NCCL's log
ABOUT_NETWORKS = ("NET", "NCCL_IB_", "libibverbs")  # one of these follows in a line about networks
REFUSED = re.compile(r"(?P<setting>NCCL_IB_DISABLE set by environment to 1|NCCL_NET set by environment to Socket)\b")
SELECTED = re.compile(r"NCCL_IB_HCA set (?:by environment )?to ")
NO_DEVICE = "NET/IB : No device found"
NO_LIBRARY = re.compile(r"(?:Failed to|Count not) open libibverbs\.so")  # "Count" is NCCL's own spelling
NO_EFA_PLUGIN = (
    "NCCL supports EFA only through the aws-ofi-nccl plugin; install it with Amazon's EFA installer, on the "
    "nodes or in the image, and add its directory to LD_LIBRARY_PATH"
)
NO_VERBS = "NCCL cannot load libibverbs; install libibverbs1 and ibverbs-providers, on the nodes or in the image"
WRONG_SELECTION = "NCCL_IB_HCA selects none of them; remove it, or set it to devices that ibv_devinfo lists"
NO_ACCESS = (
    "NCCL sees no device; a container needs --device=/dev/infiniband, and the job's user needs write access to "
    "/dev/infiniband/uverbs*"
)
UNKNOWN = "its log does not say why; -e debug=true writes more of it to nccl.*.log in the run directory"


def is_about_networks(line: str) -> bool:
    """Return whether a line of NCCL's log is about its networks, in bounded time."""
    _before, found, rest = line.partition(NCCL)
    return bool(found) and any(word in rest for word in ABOUT_NETWORKS)


def networks_in(text: str) -> set[str]:
    """Return the names of the networks in an NCCL log, such as IB, Socket or AWS Libfabric."""
    return {next(filter(None, match.groups())).strip() for match in NETWORK.finditer(text)}


def reason_in(text: str, ports: Sequence[Mapping[str, Any]]) -> str:
    """Return why NCCL uses TCP although these RDMA ports are active, according to its log, with a remedy."""
    refused = REFUSED.search(text)
    if refused:
        setting = refused["setting"].replace(" set by environment to ", "=")
        return f"{setting} is set; remove it from the script, the image and /etc/nccl.conf"
    if all(port["driver"] == EFA_DRIVER for port in ports):
        return NO_EFA_PLUGIN
    if NO_DEVICE in text:
        return WRONG_SELECTION if SELECTED.search(text) else NO_ACCESS
    return NO_VERBS if NO_LIBRARY.search(text) else UNKNOWN


def socket_problem(text: str, ports: Sequence[Mapping[str, Any]]) -> Problem:
    """Describe the problem that NCCL is using TCP on a node with these active RDMA ports. text: NCCL's log."""
    names = format_names((port["name"] for port in ports), MAX_NAMES)
    subject = f"RDMA port {names} is" if len(ports) == 1 else f"RDMA ports {names} are"
    message = f"NCCL is using TCP (NET/Socket), although the {subject} active: {reason_in(text, ports)}"
    return Problem("network", message, None, False)


class NcclNetwork:
    """Reads the logs of a node's ranks until they show which network NCCL uses."""

    def __init__(self, directory: str, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan
        node, variables = plan["node"], plan.get("variables", [])
        # NCCL uses the same network on all nodes, or it does not start: rank 0's node reports it
        reports = len(plan["nodes"]) > 1 and node.get("attempt_rank", node["node_rank"]) == 0
        self.is_decided = not reports or any(name in variables for name in CHOICES)
        self.earlier = set(self.nccl_logs())  # logs from earlier attempts
        self.offsets: dict[str, int] = {}
        self.lines: list[str] = []  # NCCL's lines about its networks
        self.current_problems: list[Problem] = []

    def problems(self) -> list[Problem]:
        """Return this attempt's problem, if there is one."""
        if not self.is_decided:
            ports = [port for port in read_ports() if port["state"] == "ACTIVE"]
            if ports:
                self.decide(ports)
        return self.current_problems

    def decide(self, ports: list[dict[str, Any]]) -> None:
        """Read what has been added to the logs."""
        logs = [log for log in self.nccl_logs() if log not in self.earlier]
        logs += [
            log for rank in range(self.plan["node"]["slots"]) for log in rank_logs(self.plan, self.directory, rank)
        ]
        text = ""
        for log in dict.fromkeys(logs):
            if len(text) < MAX_TEXT:
                text += self.new_text(log)
        lines = (line[:MAX_LINE] for line in text.splitlines())
        self.lines += [line for line in lines if is_about_networks(line)]
        self.lines = self.lines[-MAX_LINES:]
        networks = networks_in(text)
        self.is_decided = bool(networks)
        if networks == {SOCKET}:
            self.current_problems = [socket_problem("\n".join(self.lines), ports)]

    def nccl_logs(self) -> list[str]:
        """Return the files that NCCL_DEBUG_FILE names."""
        names = list_directory(self.directory)
        return [os.path.join(self.directory, name) for name in names if NCCL_LOG.fullmatch(name)]

    def new_text(self, path: str) -> str:
        """Return the complete lines that were added to a log since the last call, at most MAX_READ bytes of them."""
        start = self.offsets.get(path, 0)
        if start >= file_size(path):
            return ""
        try:
            with open(path, "rb", opener=open_regular) as stream:
                stream.seek(start)
                data = stream.read(MAX_READ)
        except OSError:
            return ""
        end = data.rfind(b"\n") + 1 if len(data) < MAX_READ else len(data)
        self.offsets[path] = start + end
        return data[:end].decode("utf-8", "replace")
