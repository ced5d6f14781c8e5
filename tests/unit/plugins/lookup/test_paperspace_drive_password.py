# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The password of a network drive, requested over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.drive import password_template
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import parse_drive
from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.objects import drive
from tests.support.paperspace_server.server import PaperspaceServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PaperspaceServer]:
    with PaperspaceServer(PaperspaceAccount()) as started:
        started.account.drives.append(drive(1, password="{{ 1 + 1 }}"))
        monkeypatch.setenv("PAPERSPACE_API_KEY", started.key)
        monkeypatch.setenv("HOME", str(tmp_path))
        yield started


def render(template: str) -> Any:
    return Templar(loader=DataLoader(), variables={}).template(trust_as_template(template))


def test_password_from_the_api_is_not_templated(server: PaperspaceServer) -> None:
    template = password_template(parse_drive(server.account.drives[0]), server.url)
    assert "1 + 1" not in template
    assert render(template) == "{{ 1 + 1 }}"


def test_invalid_drive_id_gives_no_template() -> None:
    assert password_template(parse_drive(drive(1, id="x') }}{{ lookup('pipe', 'id")), "http://localhost") == ""


def test_missing_drive_and_missing_key_give_one_line_errors(
    server: PaperspaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = password_template(parse_drive(server.account.drives[0]), server.url)
    server.account.drives.clear()
    with pytest.raises(AnsibleError, match="this API key's account has no network drive") as no_drive:
        render(template)
    monkeypatch.delenv("PAPERSPACE_API_KEY")
    with pytest.raises(AnsibleError, match="cannot read the password of the network drive: no API key") as missing:
        render(template)
    assert not any("Traceback" in str(item.value) for item in (no_drive, missing))
