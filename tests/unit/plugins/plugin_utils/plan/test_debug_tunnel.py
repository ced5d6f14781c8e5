# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tunnel to a debugged rank: its command, its lifetime, and the editor's configuration."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan import debug_tunnel
from ansible_collections.muster.training.plugins.plugin_utils._plan.debug_tunnel import (
    DebugTunnel,
    free_local_port,
    instructions,
    launch_configuration,
    open_tunnel,
    tunnel_argv,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.debugger import debugger_problems
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import DEFAULTS

DEBUGGER = {"rank": 3, "node": "gpu2", "port": 5678, "directory": "/home/ubuntu/project"}
VARIABLES = {"ansible_host": "203.0.113.12", "ansible_user": "ubuntu", "ansible_port": 2222}


def test_the_tunnel_uses_ansibles_login_and_the_loopback_addresses_of_both_machines() -> None:
    argv = tunnel_argv(VARIABLES, "gpu2", 5678)
    forward = "127.0.0.1:5678:127.0.0.1:5678"
    assert argv[:2] == ["ssh", "-T"] and argv[-2:] == ["203.0.113.12", "cat"]
    assert argv[2:-2] == ["-p", "2222", "-l", "ubuntu", "-o", "ExitOnForwardFailure=yes", "-L", forward]
    assert tunnel_argv({"ansible_connection": "local"}, "local0", 5678) == []


def test_the_tunnel_ends_with_its_input(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\ncat\necho over > over\n")
    (tmp_path / "ssh").chmod(0o755)
    with open_tunnel(["/bin/sh", "-c", f"cd {tmp_path} && ./ssh"]):
        assert not (tmp_path / "over").exists()
    assert (tmp_path / "over").exists()
    with open_tunnel([]):
        pass


def test_the_configuration_can_be_pasted_into_launch_json() -> None:
    (configuration,) = json.loads(launch_configuration(DEBUGGER, "first"))["configurations"]
    assert (configuration["type"], configuration["request"]) == ("debugpy", "attach")
    assert configuration["connect"] == {"host": "127.0.0.1", "port": 5678}
    assert configuration["pathMappings"] == [{"localRoot": "${workspaceFolder}", "remoteRoot": "/home/ubuntu/project"}]
    lines = instructions(DEBUGGER, "first", tunnel_argv(VARIABLES, "gpu2", 5678))
    assert json.loads("\n".join(lines[1:-1])) == json.loads(launch_configuration(DEBUGGER, "first"))
    assert lines[-1].endswith(
        "ssh -N -p 2222 -l ubuntu -o ExitOnForwardFailure=yes -L 127.0.0.1:5678:127.0.0.1:5678 203.0.113.12"
    )


def test_a_different_local_port_is_used_if_the_port_is_in_use_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels: list[list[str]] = []

    def tunnel_of(argv: list[str]) -> contextlib.AbstractContextManager[None]:
        tunnels.append(argv)
        return contextlib.nullcontext()

    monkeypatch.setattr(debug_tunnel, "open_tunnel", tunnel_of)
    hosts = {f"gpu{number}": {"ansible_host": f"203.0.113.1{number}"} for number in range(4)}
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as editor:
        port = editor.getsockname()[1]
        with DebugTunnel({**DEBUGGER, "port": port}, "first", hosts.get, lines.append) as tunnel:
            tunnel.follow("gpu1")
    local_port = tunnel.local_port
    assert local_port != port
    assert lines[0] == f"port {port} on this machine is in use: using port {local_port} instead"
    assert f"waiting for a debugger at 127.0.0.1:{local_port}." in lines[1] and f'"port": {local_port}' in "".join(
        lines
    )
    assert [argv[-3] for argv in tunnels] == [f"127.0.0.1:{local_port}:127.0.0.1:{port}"] * 2
    assert free_local_port(port) == port  # the editor has ended


def test_the_tunnel_follows_the_rank_to_another_node_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[str] = []

    @contextlib.contextmanager
    def tunnel(argv: list[str]) -> Iterator[None]:
        assert not current, "both need the same local port"
        current.append(argv[-2])
        yield
        current.remove(argv[-2])

    monkeypatch.setattr(debug_tunnel, "open_tunnel", tunnel)
    monkeypatch.setattr(debug_tunnel, "free_local_port", lambda port: port)
    hosts = {f"gpu{number}": {"ansible_host": f"203.0.113.1{number}"} for number in range(4)}
    lines: list[str] = []
    with DebugTunnel(DEBUGGER, "first", hosts.get, lines.append) as followed:
        assert current == ["203.0.113.12"]
        line_count = len(lines)
        for name in ("gpu2", "", None, "localhost"):  # the same node; not a node of the run
            followed.follow(name)
        assert current == ["203.0.113.12"] and len(lines) == line_count
        followed.follow("gpu1")
        assert current == ["203.0.113.11"]
        assert lines[line_count].startswith("rank 3 on gpu1 is waiting for a debugger at 127.0.0.1:5678.")
    assert current == []
    with DebugTunnel(None, "first", hosts.get, lines.append) as followed:
        followed.follow("gpu1")
        assert current == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"debug_rank": -1}, "launch_debug_rank is -1"),
        ({"debug_rank": 1, "stacks": False}, "needs launch_stacks: true"),
        ({"debug_rank": 1, "no_python": True}, "only supports Python"),
        ({"debug_rank": 1, "image": "x"}, "launch_image"),
        ({"debug_rank": 1, "debug_port": 80}, "launch_debug_port is 80"),
    ],
)
def test_undebuggable_jobs_are_refused(change: dict[str, object], text: str) -> None:
    (problem,) = debugger_problems({**DEFAULTS, **change})
    assert text in problem
    assert not debugger_problems({**DEFAULTS, "debug_rank": 1}) and not debugger_problems(DEFAULTS)
