# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tunnel to a rank that waits for a debugger, and the configuration of the editor."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._plan.shell_command import ssh_options

LOCAL_CONNECTIONS = ("local", "ansible.builtin.local")
END_TIMEOUT = 5.0  # seconds for the tunnel to end


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


def tunnel_argv(variables: Mapping[str, Any], name: str, port: int) -> list[str]:
    """Return the command that forwards a local port to the same port of a node until its input ends.

    Return [] if the node is this machine. variables: those of the node, rendered.
    """
    if variables.get("ansible_connection") in LOCAL_CONNECTIONS:
        return []
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}"]
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
    """Return how to attach a debugger, as lines for a terminal."""
    lines = [
        f"rank {debugger['rank']} on {debugger['node']} is waiting for a debugger at 127.0.0.1:{debugger['port']}. In "
        "VS Code: put this into .vscode/launch.json, open Run and Debug, and start it (F5)",
        *launch_configuration(debugger, run_id).splitlines(),
    ]
    if argv:
        manual = ["ssh", "-N", *argv[2:-1]]
        lines.append(f"The tunnel is open as long as this command runs; without it: {shlex.join(manual)}")
    return lines
