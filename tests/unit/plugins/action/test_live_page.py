# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of the live page, and nodes that it cannot query."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.utils import display

from ansible_collections.muster.training.plugins.action.live_page import ActionModule, tunnel_hint
from ansible_collections.muster.training.plugins.plugin_utils._page import node_caller
from ansible_collections.muster.training.plugins.plugin_utils._page.feed import NodeCallError
from ansible_collections.muster.training.plugins.plugin_utils._page.node_caller import NodeCaller
from ansible_collections.muster.training.plugins.plugin_utils._page.server import PageServer
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError


def test_a_user_who_logged_in_over_ssh_gets_the_command_that_forwards_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert tunnel_hint(8765) == []
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    monkeypatch.setenv("USER", "ada")
    (line,) = tunnel_hint(8765)
    assert "ssh -N -L 8765:127.0.0.1:8765 ada@" in line


def test_a_port_in_use_is_reported_as_a_user_error() -> None:
    api: Any = None
    with PageServer(api) as server, pytest.raises(UserError) as excinfo:
        ActionModule.open_server(api, server.port)
    assert f"port {server.port} on this machine cannot be used: Address already in use" in str(excinfo.value)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        (None, "gpu0 is not in this inventory"),
        ({"ansible_connection": "community.docker.docker"}, "gpu0 is reached via community.docker.docker"),
    ],
)
def test_a_node_that_cannot_be_queried_reports_the_reason_once(
    variables: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_caller, "connect", lambda *_arguments, **_options: None)
    action: Any = SimpleNamespace(_play_context=SimpleNamespace(), _templar=SimpleNamespace(template=str))
    hostvars = {} if variables is None else {"gpu0": variables}
    caller = NodeCaller(action, {"hostvars": hostvars}, "", "~/.muster/runs")
    with pytest.raises(NodeCallError) as excinfo:
        caller("gpu0", {"operation": "page"}, 1.0)
    assert str(excinfo.value).startswith(reason) and excinfo.value.is_final


def test_the_token_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """ANSIBLE_LOG_PATH may be a file that others can read."""
    monkeypatch.setattr(display, "logger", logging.getLogger("ansible"))
    api: Any = None
    with PageServer(api) as server, caplog.at_level(logging.DEBUG):
        ActionModule.show(server, "first")
    assert server.token in capsys.readouterr().out
    assert server.token not in caplog.text and "Ctrl-C stops its server" in caplog.text
