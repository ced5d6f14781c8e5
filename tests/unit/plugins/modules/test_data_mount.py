# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module itself: permissions of its users, and hidden secrets."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.module_utils._mounts import ensure
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import MountError
from ansible_collections.muster.training.plugins.module_utils._mounts.registry import KINDS
from ansible_collections.muster.training.plugins.modules import data_mount

ARGUMENTS: dict[str, Any] = {"path": "/mnt/data", "kind": "s3fs", "source": "bucket", "user": "root"}


def run_module(capsys: pytest.CaptureFixture[str], **changed: Any) -> dict[str, Any]:
    with patch_module_args({**ARGUMENTS, **changed}), pytest.raises(SystemExit):
        data_mount.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_all_mount_kinds_are_choices() -> None:
    assert set(data_mount.ARGUMENT_SPEC["kind"]["choices"]) == set(KINDS)


def test_unknown_user_is_refused() -> None:
    with pytest.raises(
        MountError, match=r"there is no user 'nobody-here' on this node\. Create the user .*or correct its name"
    ):
        data_mount.desired_mount(
            {**ARGUMENTS, "user": "nobody-here", "options": {}, "credentials": {}, "read_only": False, "timeout": 30}
        )


def test_mounting_requires_root(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = run_module(capsys)
    assert result["failed"] and "mounting needs root. Set become: true" in result["msg"]


def test_secrets_are_hidden_everywhere_but_user_names_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(*_arguments: Any) -> dict[str, Any]:
        raise MountError("key s3cr3t of jane")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(ensure, "ensure_mounted", tell)
    result = run_module(capsys, credentials={"access_key": "AKIA1", "secret_key": "s3cr3t", "username": "jane"})
    assert "s3cr3t" not in json.dumps(result) and "jane" in result["msg"]
    assert "AKIA1" not in json.dumps(result)


def test_empty_read_only_mount_gives_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = {"changed": True, "unit": "mnt-data.mount", "probe": False, "listing": {"count": 0, "digest": ""}}
    warnings: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, text: warnings.append(text))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(ensure, "ensure_mounted", lambda *_arguments: dict(listing))
    run_module(capsys)
    assert warnings == []
    run_module(capsys, read_only=True)
    assert warnings == ["/mnt/data (bucket) is empty: check the bucket or share, and the prefix"]


@pytest.mark.parametrize("password", ["Xk7Qw9", "Xk7Qw9 'b\" \\%h", "Xk7Qw9\nä"])
def test_password_is_neither_in_the_journal_nor_in_the_reply(
    password: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(basic, "has_journal", False)
    monkeypatch.setattr(basic.AnsibleModule, "_log_to_syslog", lambda _self, message: logged.append(message))
    credentials = {"username": "trainer", "password": password, "domain": "LAB"}
    # an invalid path is rejected before anything is changed
    arguments = {"path": "mnt/trainer", "kind": "cifs", "source": "//10.0.0.2/LAB", "credentials": credentials}
    with patch_module_args({**arguments, "user": "root"}), pytest.raises(SystemExit):
        data_mount.main()
    reply = json.loads(capsys.readouterr().out)
    assert reply["failed"] and "mnt/trainer" in reply["msg"], "a word that is a user's name is not hidden in a path"
    assert len(logged) == 1 and "kind=cifs" in logged[0]
    assert "Xk7Qw9" not in logged[0] + json.dumps(reply)
