# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tunnel to a rank that is waiting for a debugger, and the editor configuration."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._cluster.local_connection import is_local
from ansible_collections.muster.training.plugins.plugin_utils._plan.shell_command import ssh_options

END_TIMEOUT = 5.0  # seconds for the tunnel to exit


def launch_configuration(debugger: Mapping[str, Any], run_id: str) -> str:
    """Return a launch.json for VS Code and other editors that use debugpy."""
    attach = {
        "name": f"muster: rank {debugger['rank']} of {run_id}",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": debugger["port"]},
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": str(debugger.get("directory", ""))}],
        "justMyCode": True,
        "subProcess": False,
    }
    return json.dumps({"version": "0.2.0", "configurations": [attach]}, indent=2)


def free_local_port(preferred: int) -> int:
    """Return an unused port on this machine's loopback address, the preferred one if possible."""
    for port in (preferred, 0):  # 0: the kernel chooses
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    return preferred


def tunnel_argv(variables: Mapping[str, Any], name: str, port: int, local_port: int = 0) -> list[str]:
    """Return the command that forwards a local port, by default the same one, to a port on a node until its input ends.

    Return [] if the node is this machine. variables: those of the node, rendered.
    """
    if is_local(variables):
        return []
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local_port or port}:127.0.0.1:{port}"]
    host = str(variables.get("ansible_host") or name)
    return ["ssh", "-T", *ssh_options(variables), *forward, host, "cat"]


@contextlib.contextmanager
def open_tunnel(argv: list[str]) -> Iterator[None]:
    """Keep a tunnel open. It also ends if this process is killed: ssh's input ends, and with it `cat` on the node."""
    if not argv:
        yield
        return
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


def instructions(debugger: Mapping[str, Any], run_id: str, argv: list[str]) -> list[str]:
    """Return how to attach a debugger, as lines for a terminal. debugger: its port is the one on this machine."""
    lines = [
        f"rank {debugger['rank']} on {debugger['node']} is waiting for a debugger at 127.0.0.1:{debugger['port']}. In "
        "VS Code: put this into .vscode/launch.json, open Run and Debug, and start it (F5)",
        *launch_configuration(debugger, run_id).splitlines(),
    ]
    if argv:
        manual = ["ssh", "-N", *argv[2:-1]]
        lines.append(f"The tunnel stays open as long as this command runs; to open it yourself: {shlex.join(manual)}")
    return lines


class DebugTunnel:
    """The tunnel to the debugged rank's node, which may be a different one after the run restarts."""

    def __init__(
        self,
        debugger: Mapping[str, Any] | None,
        run_id: str,
        variables_of: Callable[[str], Mapping[str, Any] | None],
        show: Callable[[str], object],
    ) -> None:
        """Store the data that a tunnel needs.

        debugger: as in the plan, None if no rank is debugged. variables_of: returns the rendered variables of a node,
        None for other names. show: displays a line.
        """
        self.debugger = debugger
        self.run_id = run_id
        self.variables_of = variables_of
        self.show = show
        self.node = ""
        self.local_port = 0  # the same for each node, since the editor knows it
        self.tunnel = contextlib.ExitStack()

    def __enter__(self) -> DebugTunnel:
        if self.debugger:
            self.open(self.debugger["node"], self.variables_of(self.debugger["node"]) or {})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tunnel.close()

    def open(self, node: str, variables: Mapping[str, Any]) -> None:
        """Open the tunnel to a node, and explain how to attach."""
        debugger = {**(self.debugger or {}), "node": node}
        port = debugger["port"]
        if tunnel_argv(variables, node, port):
            self.local_port = debugger["port"] = free_local_port(self.local_port or port)
        argv = tunnel_argv(variables, node, port, debugger["port"])
        if debugger["port"] != port:
            self.show(f"port {port} on this machine is in use: using port {debugger['port']} instead")
        for line in instructions(debugger, self.run_id, argv):
            self.show(line)
        self.node = node
        self.tunnel.enter_context(open_tunnel(argv))

    def follow(self, node: object) -> None:
        """Open the tunnel to the node on which the rank is now waiting, if it is a different node of the run."""
        if not self.debugger or not isinstance(node, str) or node == self.node:
            return
        variables = self.variables_of(node)
        if variables is not None:
            self.tunnel.close()
            self.open(node, variables)
